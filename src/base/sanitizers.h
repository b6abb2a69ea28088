// For tests that do less, or nothing, under a sanitizer or on an emulated processor.
#pragma once

namespace tandem {

// Address or thread sanitizer, or a cross-compiled test (TANDEM_EMULATED). All make everything slow, and
// sanitizers reserve terabytes of address space.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TANDEM_EMULATED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tandem
