#include "ops/cuda/linear/cublaslt_product.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace tandem {
namespace {

cudaDataType_t CudaType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    default:
      break;
  }
  TANDEM_CHECK(false, "linear: matrix of {}", DTypeName(dtype));
}

// Largest power of two up to 16, which no kernel needs more than, that divides the address.
uint32_t AlignmentOf(const void* data) {
  constexpr uintptr_t kLargest = 16;
  const auto address = reinterpret_cast<uintptr_t>(data) | kLargest;
  return static_cast<uint32_t>(address & (~address + 1));
}

template <typename T>
void SetOperation(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  CheckCublas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
              "describe product");
}

template <typename T>
void SetPreference(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                   const T& value) {
  CheckCublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
              "describe preference");
}

// Memory is column-major to cuBLASLt: a row-major [rows, cols] is its [cols, rows].
void SetLayout(cublasLtMatrixLayout_t layout, const MatrixView& view) {
  CheckCublas(cublasLtMatrixLayoutInit(layout, CudaType(view.dtype), static_cast<uint64_t>(view.cols),
                                       static_cast<uint64_t>(view.rows), view.row_stride),
              "describe matrix");
}

}  // namespace

void CheckCublas(cublasStatus_t status, const char* what) {
  TANDEM_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: {}: {}", what, cublasLtGetStatusString(status));
}

CublasLtProduct::CublasLtProduct(cublasLtHandle_t handle, LinearMethod method, const MatrixView& x,
                                 const MatrixView& weight, const void* bias, DType bias_dtype,
                                 const MatrixView& y, int num_sms, const Fp8Scales& scales)
    : handle_(handle), y_is_f32_(y.dtype == DType::kF32), d_(y.data) {
  CheckCublas(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe product");
  SetOperation(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (num_sms > 0) {
    SetOperation(&operation_, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<int32_t>(num_sms));
  }
  if (x.dtype == DType::kF8E4M3) {
    TANDEM_CHECK(method == LinearMethod::kCublasLt, "linear: a row-major product of FP8");
    SetFp8(scales);
  }
  if (method == LinearMethod::kCublasLt) {
    a_ = weight.data;
    b_ = x.data;
    SetLayout(&a_layout_, weight);
    SetLayout(&b_layout_, x);
    SetLayout(&d_layout_, y);
  } else {
    TANDEM_CHECK(bias == nullptr, "linear: bias of a row-major product");
    a_ = x.data;
    b_ = weight.data;
    SetLayout(&a_layout_, x);
    SetLayout(&b_layout_, weight);
    CheckCublas(cublasLtMatrixLayoutInit(&d_layout_, CudaType(y.dtype), static_cast<uint64_t>(y.rows),
                                         static_cast<uint64_t>(y.cols), y.row_stride),
                "describe matrix");
    constexpr int32_t kOrder = CUBLASLT_ORDER_ROW;
    CheckCublas(
        cublasLtMatrixLayoutSetAttribute(&d_layout_, CUBLASLT_MATRIX_LAYOUT_ORDER, &kOrder, sizeof(kOrder)),
        "describe matrix");
  }
  if (bias != nullptr) {
    SetOperation(&operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    SetOperation(&operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    SetOperation(&operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                 static_cast<int32_t>(CudaType(bias_dtype)));
  }
}

void CublasLtProduct::SetFp8(const Fp8Scales& scales) {
  // Sums stay in the tensor core's own registers, which hold fewer bits than fp32: what that costs is a
  // small part of what rounding x to FP8 does.
  constexpr int8_t kFastAccumulation = 1;
  SetOperation(&operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, kFastAccumulation);
  if (scales.x == nullptr) {
    alpha_ = kUnscaledFp8;
    return;
  }
  constexpr int32_t kMode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  SetOperation(&operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kMode);
  SetOperation(&operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kMode);
  SetOperation(&operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.weight);
  SetOperation(&operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.x);
}

std::vector<cublasLtMatmulAlgo_t> CublasLtProduct::Heuristics(size_t max_workspace_bytes,
                                                              int max_count) const {
  cublasLtMatmulPreferenceOpaque_t preference = {};
  CheckCublas(cublasLtMatmulPreferenceInit(&preference), "describe preference");
  SetPreference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                static_cast<uint64_t>(max_workspace_bytes));
  // Partial sums in fp32 only.
  const uint32_t reductions =
      y_is_f32_ ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  SetPreference(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  SetPreference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(a_));
  SetPreference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(b_));
  SetPreference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(d_));
  SetPreference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(d_));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(max_count));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, &operation_, &a_layout_, &b_layout_, &d_layout_, &d_layout_,
                                     &preference, max_count, results.data(), &count);
  // Not supported: no result. Anything else that is wrong is wrong in the description.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  TANDEM_CHECK(status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_INVALID_VALUE,
               "cuBLASLt: choose an algorithm: {}", cublasLtGetStatusString(status));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

bool CublasLtProduct::CanRun(const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result = {};
  return cublasLtMatmulAlgoCheck(handle_, &operation_, &a_layout_, &b_layout_, &d_layout_, &d_layout_,
                                 &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kLinearWorkspaceBytes;
}

cublasStatus_t CublasLtProduct::Run(cudaStream_t stream, const cublasLtMatmulAlgo_t& algorithm,
                                    void* workspace) const {
  constexpr float kZero = 0.0F;
  return cublasLtMatmul(handle_, &operation_, &alpha_, a_, &a_layout_, b_, &b_layout_, &kZero, d_, &d_layout_,
                        d_, &d_layout_, &algorithm, workspace, kLinearWorkspaceBytes, stream);
}

}  // namespace tandem
