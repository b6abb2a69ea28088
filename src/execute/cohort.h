// A cohort in flight: cpu-tier rows that advance together, with their own layer cursor and activations.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cpu_attention/decode_plan.h"
#include "device/device.h"
#include "execute/int_inputs.h"
#include "model/decoder.h"
#include "model/row_batch.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Lives from the visit of kEntry to that of the last layer. Between visits its attention is a task of
// CpuAttention, possibly across iterations; ready and done carry one sequence number a layer.
struct Cohort {
  static Result<std::unique_ptr<Cohort>> Create(Device* device, const Decoder& decoder,
                                                std::vector<DecodeRow> rows);

  std::vector<DecodeRow> rows;
  int64_t cursor = kEntry;

  RowBuffers buffers;
  std::unique_ptr<RowBatch> batch;
  IntInputs inputs;
  std::unique_ptr<DecodePlan> attention_plan;

  std::unique_ptr<Flag> ready;  // Q/K/V of the cohort's n-th layer are there
  std::unique_ptr<Flag> done;   // O of it is there
  uint32_t sequence = 0;        // n of the attention under way
};

}  // namespace tandem
