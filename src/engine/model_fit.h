// What of a model fits into a backend's memory, in which form of its weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/quantization.h"
#include "engine/backend.h"
#include "load/checkpoint.h"

namespace tandem {

struct ModelFit {
  Quantization quantization = Quantization::kKeep;
  std::string weights;  // WeightsEstimate::form
  int64_t weight_bytes = 0;
  // Tokens that the tiers hold beside the weights where no flag says otherwise; the cpu tier where a strategy
  // uses it.
  int64_t gpu_kv_tokens = 0;
  int64_t cpu_kv_tokens = 0;
  // The sentence that says why the model cannot be served so; empty: it can.
  std::string error;
};

// One for each quantization that makes a difference: kKeep only where the file has quantized weights that the
// backend multiplies (so backend should be made for kKeep). What activations take is left out.
std::vector<ModelFit> FitModel(const Checkpoint& checkpoint, const Backend& backend, DType dtype);

// The least of counts whose shards, one a device with free_bytes, hold weights of weight_bytes and a KV cache
// of a few thousand tokens; 0: none of them. counts: ascending, into which the model can be cut.
int FewestShards(const std::vector<int>& counts, int64_t weight_bytes, int64_t kv_bytes_per_token,
                 int64_t free_bytes);

}  // namespace tandem
