// Which product, and how it is computed.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <tuple>

#include "base/dtype.h"
#include "ops/cuda/linear/fused/fused_gate_up.h"
#include "ops/cuda/linear/streamed/streamed_linear.h"

namespace tandem {

// Products that differ in their number of rows only.
struct ProductKind {
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType dtype = DType::kBF16;  // of the weight's values: FP8 where cuBLASLt multiplies those
  DType y_dtype = DType::kBF16;
  bool has_bias = false;
  bool is_gate_up = false;  // of Ops::GateUp

  bool is_fp8() const { return dtype == DType::kF8E4M3; }
  bool operator==(const ProductKind&) const = default;
  bool operator<(const ProductKind& other) const {
    return std::tie(out_features, in_features, dtype, y_dtype, has_bias, is_gate_up) <
           std::tie(other.out_features, other.in_features, other.dtype, other.y_dtype, other.has_bias,
                    other.is_gate_up);
  }
};

enum class LinearMethod : uint8_t {
  // y^T = W x^T in cuBLASLt's column-major terms: bias can be part of it.
  kCublasLt,
  // y = x W^T with y in row-major order: other kernels are on offer for it. No bias.
  kCublasLtRowMajor,
  kSkinny,    // ops/cuda/linear/skinny_linear.h
  kFp8Codes,  // ops/cuda/linear/fp8/fp8_linear.h: x is not rounded
  kStreamed,  // ops/cuda/linear/streamed/streamed_linear.h
};

struct LinearAlgorithm {
  LinearMethod method = LinearMethod::kCublasLt;
  // The bias is added by a kernel of its own: cuBLASLt has no algorithm that does both.
  bool separate_bias = false;
  // Of FP8: a kernel of its own scales the product, and adds the bias: cuBLASLt has no algorithm that does.
  bool separate_scales = false;
  cublasLtMatmulAlgo_t lt = {};
  StreamedLinear streamed = StreamedLinear::kNone;  // not kNone: method is kStreamed
  float measured_us = 0.0F;
  // Of a gate-up weight: what GateUp runs instead of this algorithm and SiluMul.
  FusedGateUp fused = FusedGateUp::kNone;
  float fused_us = 0.0F;  // 0: not measured, or not faster
};

}  // namespace tandem
