// In which form a model's weights are kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/quantization.h"
#include "base/result.h"
#include "load/checkpoint.h"
#include "ops/ops.h"

namespace tandem {

struct WeightFormatOptions {
  Quantization quantization = Quantization::kAuto;
  DType dtype = DType::kF32;
};

// Of a weight made of the rows of these tensors: one format that holds them all, kFloat where they are
// widened: among them weights whose columns have to be reordered (TensorInfo::column_order), where the
// backend does not do that or tensors want different orders. is_vocabulary: of the embedding and the lm_head.
// Errors: kNotFound; kUnsupported (param "quantization") where int4, int8 or fp8 is wanted and no groups
// divide the rows or the backend does not keep them.
Result<WeightFormat> StoredWeightFormat(const Checkpoint& checkpoint, const std::vector<std::string>& tensors,
                                        bool is_vocabulary, const WeightFormatOptions& options,
                                        const Ops& ops);

struct WeightsEstimate {
  int64_t bytes = 0;  // of all matrices of the configuration; a tied lm_head of floats twice, as it is kept
  std::string form;   // of the MLP of the first layer: "bf16", "int4, groups of 32 with minimum"
};
// What StoredWeightFormat comes to. Errors: its.
Result<WeightsEstimate> EstimateWeights(const Checkpoint& checkpoint, const WeightFormatOptions& options,
                                        const Ops& ops);

}  // namespace tandem
