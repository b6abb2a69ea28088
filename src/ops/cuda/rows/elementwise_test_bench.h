// What the tests of the row-wise ops on a GPU share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "ops/cuda/cuda_op_test_bench.h"

namespace tandem {

// One rounding of the output type, and the error of fp32 arithmetic.
inline double Tolerance(DType out, double value) {
  const double rounding = out == DType::kBF16 ? 0x1p-8 : out == DType::kF16 ? 0x1p-11 : 0.0;
  const double smallest = out == DType::kF16 ? 0x1p-24 : 0.0;
  return std::abs(value) * rounding + smallest + 4e-6 * (1.0 + std::abs(value));
}

inline float Rounded(DType dtype, float value) {
  if (dtype == DType::kBF16) return BF16ToF32(F32ToBF16(value));
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(value));
  return value;
}

struct TypePair {
  DType in = DType::kF32;
  DType out = DType::kF32;
};
inline constexpr TypePair kEngineTypes[] = {{DType::kBF16, DType::kBF16},
                                            {DType::kF16, DType::kF16},
                                            {DType::kF32, DType::kF32},
                                            {DType::kF32, DType::kBF16},
                                            {DType::kF32, DType::kF16}};

inline std::string Name(TypePair types) {
  return std::string(DTypeName(types.in)) + " to " + std::string(DTypeName(types.out));
}

class CudaElementwiseTest : public CudaOpTest {
 protected:
  // What is left of a matrix that an op wrote into `inner`, its first columns, must be as poisoned as before.
  static void ExpectPoisonAfter(const CudaMatrix& matrix, int64_t inner_cols) {
    for (int64_t r = 0; r < matrix.rows(); ++r) {
      for (int64_t c = inner_cols; c < matrix.cols(); ++c) {
        ASSERT_TRUE(std::isnan(matrix.At(r, c))) << "written past the end of row " << r << " at " << c;
      }
    }
  }
};

}  // namespace tandem
