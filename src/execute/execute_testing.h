// The shared parts of an executor on the host backend, with a model of random weights: for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "device/host/host_device.h"
#include "execute/lanes.h"
#include "execute/logits_stage.h"
#include "execute/shared_parts.h"
#include "kv/kv_cache_options.h"
#include "kv/kv_memory.h"
#include "load/dummy_models.h"
#include "model/decoder.h"
#include "model/dummy_weights.h"
#include "ops/host/host_ops.h"
#include "plan/iteration_input.h"

namespace tandem::testing {

// num_blocks from `first` on.
inline std::vector<int32_t> Blocks(int32_t first, int64_t num_blocks) {
  std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

// Tokens and table of a span; greedy, if it gives logits.
inline SpanInput InputOf(const RowSpan& span, std::vector<int32_t> blocks) {
  SpanInput input;
  for (int64_t i = 0; i < span.num_tokens; ++i)
    input.token_ids.push_back(
        static_cast<int32_t>((span.sequence * 100 + static_cast<uint64_t>(span.start + i)) % 500));
  input.block_table = std::move(blocks);
  if (span.num_sampled() > 0) input.sampling = SamplingInput{.temperature = 0};
  return input;
}

// Two layers, 20 blocks a tier.
class ExecuteBench {
 public:
  static constexpr int64_t kNumBlocks = 20;
  static constexpr int64_t kMaxRows = 64;
  static constexpr int64_t kTransitTokens = 320;

  ExecuteBench()
      : device_(CreateHostDevice({.num_compute_threads = 2})),
        ops_(CreateHostOps()),
        decoder_(MakeDecoder(device_.get(), ops_.get())) {
    const ModelConfig& config = decoder_.config();
    const KvShape shape = {.format = KvFormat::Plain(DType::kF32),
                           .num_kv_heads = config.num_kv_heads,
                           .head_dim = config.head_dim};
    const KvCacheOptions cache = {.num_layers = config.num_layers,
                                  .gpu = {.shape = shape, .num_blocks = kNumBlocks},
                                  .cpu = {.shape = shape, .num_blocks = kNumBlocks},
                                  .cpu_parts = 1};
    kv_ = KvMemory::Create(device_.get(), cache).value();
    logits_stage_ = LogitsStage::Create(device_.get(), &decoder_, ops_.get(), kMaxRows, kMaxRows).value();
    cpu_attention_ = std::make_unique<CpuAttention>(CpuAttentionOptions{.num_threads = 2, .pin = false});
    transit_slots_ = TransitSlots::Create(device_.get(), shape, kTransitTokens).value();
    lanes_ =
        Lanes::Create(device_.get(), config.num_layers, {.cpu_tier = true, .riders = true}, nullptr).value();
    parts_ = {.device = device_.get(),
              .ops = ops_.get(),
              .decoder = &decoder_,
              .kv = kv_.get(),
              .lanes = lanes_.get(),
              .logits_stage = logits_stage_.get(),
              .cpu_attention = cpu_attention_.get(),
              .transit_slots = transit_slots_.get()};
  }

  const SharedParts& parts() const { return parts_; }
  int64_t block_size() const { return kv_->layout(Tier::kGpu).shape.block_size; }
  CpuAttention& cpu_attention() { return *cpu_attention_; }

 private:
  static Decoder MakeDecoder(Device* device, Ops* ops) {
    const ModelConfig config = DummyModelConfig("tiny").value();
    return Decoder(
        config, DType::kF32,
        MakeDummyWeights(config, device, ops, {.max_model_len = 512, .seed = 3, .show_progress = false})
            .value(),
        ops);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Decoder decoder_;
  std::unique_ptr<KvMemory> kv_;
  std::unique_ptr<LogitsStage> logits_stage_;
  std::unique_ptr<CpuAttention> cpu_attention_;
  std::unique_ptr<TransitSlots> transit_slots_;
  std::unique_ptr<Lanes> lanes_;  // last: their threads end first
  SharedParts parts_;
};

}  // namespace tandem::testing
