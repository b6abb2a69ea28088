// What the parts of an executor work with.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collective/collective.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "execute/kv_transit.h"
#include "execute/lanes.h"
#include "execute/logits_stage.h"
#include "kv/kv_memory.h"
#include "model/decoder.h"
#include "ops/ops.h"

namespace tandem {

// Everything outlives the parts.
struct SharedParts {
  Device* device = nullptr;
  Ops* ops = nullptr;
  const Decoder* decoder = nullptr;
  const KvMemory* kv = nullptr;
  Lanes* lanes = nullptr;
  LogitsStage* logits_stage = nullptr;
  // Null without a cpu tier.
  CpuAttention* cpu_attention = nullptr;
  const TransitSlots* transit_slots = nullptr;
  Collective* rider_collective = nullptr;  // ExecutorOptions, these two
  int64_t max_context = 0;

  int64_t num_layers() const { return decoder->config().num_layers; }
  Stream& compute_stream() const { return *lanes->compute().stream; }
  Stream& copy_stream() const { return *lanes->copy().stream; }

  // Of batches of at most max_rows rows that attend over num_blocks blocks, or more in tables that have some
  // of them in common.
  AttentionCapacity AttentionCapacityFor(int64_t max_rows, int64_t num_blocks,
                                         int64_t max_table_blocks = 0) const {
    const int64_t num_tokens = num_blocks * kv->layout(Tier::kGpu).shape.block_size;
    const ModelConfig& config = decoder->config();
    return {.max_rows = max_rows,
            .max_sequences = max_rows,
            // The block of a token that is being computed is reserved already.
            .max_blocks = std::max(num_blocks, max_table_blocks),
            .max_context = max_context > 0 ? std::min(max_context, num_tokens) : num_tokens,
            .kv = kv->layout(Tier::kGpu).shape,
            .coded_rows = decoder->dtype(),
            .num_heads = config.num_heads,
            .sliding_window = config.sliding_window};
  }
};

}  // namespace tandem
