// One matrix product as cuBLASLt describes it.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "base/matrix_view.h"
#include "ops/cuda/linear/linear_algorithm.h"

namespace tandem {

constexpr size_t kLinearWorkspaceBytes = size_t{64} << 20;

// Of a product of two matrices of FP8: fp32 in GPU memory, [rows] of x and [out] of the weight. Null: the
// product is that of the values, times kUnscaledFp8.
struct Fp8Scales {
  const float* x = nullptr;
  const float* weight = nullptr;
};
// Brings the largest sums of values, 448^2 times some ten thousand, into fp16's range.
constexpr float kUnscaledFp8 = 0x1p-18F;

// y = x weight^T (+ bias). Descriptors only: cheap to make for every call.
class CublasLtProduct {
 public:
  // method: one of cuBLASLt's; of FP8 kCublasLt. weight: [out, in], dense; x and weight: of one type. scales:
  // of FP8. bias: GPU memory [out] of bias_dtype, or null; only
  // with kCublasLt. num_sms: what the kernels may use; 0: the whole GPU.
  CublasLtProduct(cublasLtHandle_t handle, LinearMethod method, const MatrixView& x, const MatrixView& weight,
                  const void* bias, DType bias_dtype, const MatrixView& y, int num_sms,
                  const Fp8Scales& scales = {});

  // At most max_count, what cuBLASLt takes for the best first. None if it cannot do the product.
  std::vector<cublasLtMatmulAlgo_t> Heuristics(size_t max_workspace_bytes, int max_count) const;
  // False if algorithm cannot do this product within kLinearWorkspaceBytes.
  bool CanRun(const cublasLtMatmulAlgo_t& algorithm) const;
  cublasStatus_t Run(cudaStream_t stream, const cublasLtMatmulAlgo_t& algorithm, void* workspace) const;

 private:
  void SetFp8(const Fp8Scales& scales);

  cublasLtHandle_t handle_;
  bool y_is_f32_;
  float alpha_ = 1.0F;
  const void* a_;
  const void* b_;
  void* d_;
  // Setting attributes and asking take pointers to non-const.
  mutable cublasLtMatmulDescOpaque_t operation_ = {};
  mutable cublasLtMatrixLayoutOpaque_t a_layout_ = {};
  mutable cublasLtMatrixLayoutOpaque_t b_layout_ = {};
  mutable cublasLtMatrixLayoutOpaque_t d_layout_ = {};
};

// CHECKs status; what: the operation.
void CheckCublas(cublasStatus_t status, const char* what);

}  // namespace tandem
