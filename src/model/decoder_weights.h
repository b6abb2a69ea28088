// The weights of a decoder-only model in the layout that the ops want. Immutable after loading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/matrix_view.h"
#include "base/quantization.h"
#include "base/result.h"
#include "collective/shard.h"
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
  MatrixView embedding;  // [vocab of the shard, hidden] dtype; empty where the embedding is quantized
  // The quantized embedding: untied_embedding, or lm_head if the model ties them.
  const QuantizedLinearWeight* quantized_embedding = nullptr;
  std::unique_ptr<QuantizedLinearWeight> untied_embedding;
  std::vector<LayerWeights> layers;
  Buffer final_norm;                      // [hidden] fp32
  std::unique_ptr<LinearWeight> lm_head;  // of floats: a packed copy of the embedding if the model ties them
  Buffer rope_table;                      // [max_model_len, head_dim] fp32
  size_t size_bytes = 0;

  // How the layers' weights and the lm_head are stored: "bf16", or "int4, groups of 32 with minimum; int8,
  // ...", the most bytes first.
  std::string Describe() const;
  // Of the linear operations of a layer, on average.
  double LayerBytes() const;
};

struct WeightLoadOptions {
  Shard shard;  // of which the slices are loaded; the whole model by default
  DType dtype = DType::kF32;
  Quantization quantization = Quantization::kAuto;
  int64_t max_model_len = 0;
  int num_threads = 1;
  bool show_progress = true;
};

// Reads, converts and packs all weights with num_threads threads. Errors: what the checkpoint or the device
// says; kUnsupported (param "tensor-parallel-size") for a quantized weight whose columns cannot be cut so.
Result<DecoderWeights> LoadDecoderWeights(const Checkpoint& checkpoint, Device* device, Ops* ops,
                                          const WeightLoadOptions& options);

}  // namespace tandem
