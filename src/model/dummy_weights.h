// Random weights of a model's shape, for running without a checkpoint.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/quantization.h"
#include "base/result.h"
#include "collective/shard.h"
#include "device/device.h"
#include "load/model_config.h"
#include "model/decoder_weights.h"
#include "ops/ops.h"

namespace tandem {

struct DummyWeightOptions {
  Shard shard;  // of which the slices are made; the whole model by default
  DType dtype = DType::kF32;
  Quantization quantization = Quantization::kAuto;  // kInt4, kInt8 and kFp8: of all matrices
  int64_t max_model_len = 0;
  uint64_t seed = 0;
  bool show_progress = true;
};

// Made where they stay: nothing is read or moved. Matrices are uniform with the standard deviation that
// models are usually initialized with, each from a seed of its own; norms are 1, biases 0; a tied lm_head
// equals the embedding. Quantized ones (in groups of up to 128, FP8 with a scale a row) are HashedRows. The
// same config, seed and dtype give the same values on every backend, however many shards have them. Errors:
// what the device and the ops say, kResourceExhausted above all; kUnsupported (param "tensor-parallel-size")
// for quantized weights whose columns cannot be cut so; kUnsupported (param "quantization") where the backend
// does not keep what is wanted.
Result<DecoderWeights> MakeDummyWeights(const ModelConfig& config, Device* device, Ops* ops,
                                        const DummyWeightOptions& options);

}  // namespace tandem
