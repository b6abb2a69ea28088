// What the headers of the instruction sets share. Included by them only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#define TANDEM_SIMD_INLINE [[gnu::always_inline]] inline

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see simd.h

// Bits of an IEEE half: a type of its own, since bf16 is the plain uint16_t.
enum class Fp16 : uint16_t {};

}  // namespace
}  // namespace tandem
