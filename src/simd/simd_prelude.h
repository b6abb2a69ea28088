// What the headers of the instruction sets share. Included by them only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(TANDEM_NEON)
#include <arm_neon.h>
#endif

// Vectors of bf16 are multiplied without being widened.
#if defined(__AVX512BF16__) || (defined(TANDEM_NEON) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC))
#define TANDEM_SIMD_BF16
#endif
// NEON's products of matrices of 2 by 4 bf16 and of 2 by 8 int8.
#if defined(TANDEM_NEON) && defined(__ARM_FEATURE_MATMUL_INT8) && defined(TANDEM_SIMD_BF16)
#define TANDEM_NEON_MATRIX
#endif

#define TANDEM_SIMD_INLINE [[gnu::always_inline]] inline

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see simd.h

// Bits of an IEEE half: a type of its own, since bf16 is the plain uint16_t.
enum class Fp16 : uint16_t {};

}  // namespace
}  // namespace tandem
