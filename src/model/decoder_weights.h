// The weights of a decoder-only model in the layout that the ops want. Immutable after loading.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/matrix_view.h"
#include "base/result.h"
#include "device/device.h"
#include "load/checkpoint.h"
#include "ops/ops.h"

namespace tandem {

struct LayerWeights {
  Buffer attention_norm;  // [hidden] fp32
  Buffer q_norm;          // [head_dim] fp32, empty unless the model has q/k norms
  Buffer k_norm;
  std::unique_ptr<LinearWeight> qkv;  // q, k and v rows fused
  std::unique_ptr<LinearWeight> output;
  Buffer mlp_norm;                        // [hidden] fp32
  std::unique_ptr<LinearWeight> gate_up;  // Ops::CreateGateUpWeight
  std::unique_ptr<LinearWeight> down;
};

struct DecoderWeights {
  Buffer embedding_memory;
  MatrixView embedding;  // [vocab, hidden] dtype
  std::vector<LayerWeights> layers;
  Buffer final_norm;                      // [hidden] fp32
  std::unique_ptr<LinearWeight> lm_head;  // a packed copy of the embedding if the model ties them
  Buffer rope_table;                      // [max_model_len, head_dim] fp32
  size_t size_bytes = 0;
};

struct WeightLoadOptions {
  DType dtype = DType::kF32;
  int64_t max_model_len = 0;
  int num_threads = 1;
  bool show_progress = true;
};

// Reads, converts and packs all weights with num_threads threads. Errors: what the checkpoint or the device
// says.
Result<DecoderWeights> LoadDecoderWeights(const Checkpoint& checkpoint, Device* device, Ops* ops,
                                          const WeightLoadOptions& options);

}  // namespace tandem
