// The real parts of an engine that a profile measures.
#pragma once

#include <cstdint>

#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "execute/logits_stage.h"
#include "kv/kv_books.h"
#include "kv/kv_memory.h"
#include "model/decoder.h"
#include "model/row_batch.h"
#include "ops/ops.h"

namespace tandem {

// All of one engine, idle, and nothing in its cache: the profile overwrites any block and all activations.
// plan has room for max_rows rows and sequences and for all blocks of the gpu tier.
struct ProfileParts {
  Device* device = nullptr;
  Ops* ops = nullptr;
  const Decoder* decoder = nullptr;
  const KvBooks* books = nullptr;
  KvMemory* memory = nullptr;
  CpuAttention* cpu_attention = nullptr;  // null: the cpu tier is not measured
  Stream* compute = nullptr;
  Stream* copy = nullptr;
  const RowBuffers* rows = nullptr;
  AttentionPlan* plan = nullptr;
  LogitsStage* logits = nullptr;
  int64_t max_rows = 0;     // of an iteration; rows hold as many
  int64_t max_context = 0;  // of a request
};

}  // namespace tandem
