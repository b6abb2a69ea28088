// For tests that do less, or nothing, under a sanitizer.
#pragma once

namespace tandem {

// Address or thread sanitizer. Both reserve terabytes of address space and make everything slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tandem
