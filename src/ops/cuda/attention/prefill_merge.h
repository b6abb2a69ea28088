// Adds up the partial results of an attention that was split over its keys.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// Device memory. Row merge_row[i] of out becomes the mean of partial rows
// [merge_indptr[i], merge_indptr[i + 1]), weighted per head by 2 ^ log_sum_exp.
struct PrefillMerge {
  DType dtype = DType::kBF16;          // of partial and out: bf16 or fp16
  const void* partial = nullptr;       // [partial rows][num_heads][head_dim]
  const float* log_sum_exp = nullptr;  // [partial rows][num_heads]; very small: no keys
  void* out = nullptr;                 // [rows][num_heads][head_dim], 16-byte aligned like partial
  const int32_t* merge_row = nullptr;
  const int32_t* merge_indptr = nullptr;
  int64_t num_rows = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;  // a multiple of 8
};

void MergePrefill(CudaStream& stream, const PrefillMerge& merge);

}  // namespace tandem
