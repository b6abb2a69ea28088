// What the parts of an executor work with.
#pragma once

#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
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
  CpuAttention* cpu_attention = nullptr;  // null without a cpu tier

  int64_t num_layers() const { return decoder->config().num_layers; }
  Stream& compute_stream() const { return *lanes->compute().stream; }
  Stream& copy_stream() const { return *lanes->copy().stream; }
};

}  // namespace tandem
