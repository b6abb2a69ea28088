// The rows of one iteration's main sub-batch, and of the riders behind them: what the host knows of them. How
// they go through the layers: execute/main_pass.h.
//
//   [0, num_gpu_rows)    gpu tier: spans of several rows or of a prompt, then decodes
//   num_transit_rows     spans in transit
//   num_cpu_rows         spans attended in the cpu tier
//                        in a graph: rows for nothing up to its size
//   num_rider_rows       room for riders, of which each boundary has its own (execute/riding_pass.h)
//
// Within a kind the order is that of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/sampled_token.h"
#include "cpu_attention/decode_plan.h"
#include "execute/decode_graphs.h"
#include "execute/iteration_result.h"
#include "execute/kv_transit.h"
#include "execute/logits_stage.h"
#include "execute/riding_pass.h"
#include "model/row_batch.h"
#include "ops/attention.h"
#include "plan/iteration_input.h"

namespace tandem {

enum class RowKind : uint8_t { kGpuSpan, kGpuDecode, kTransit, kCpu };
RowKind RowKindOf(const RowSpan& span);

struct MainRows {
  int64_t num_gpu_rows = 0;
  int64_t num_transit_rows = 0;
  int64_t num_cpu_rows = 0;
  int64_t num_rider_rows = 0;
  int64_t rider_begin = 0;
  std::vector<size_t> span_order;  // of the plan's main spans, as their rows lie
  // Of all rows. Negative slots: not appended here.
  std::vector<int32_t> token_ids;  // negative: of a token to come (FindTokensToCome)
  std::vector<int32_t> positions;
  std::vector<int32_t> slots;

  AttentionBatch gpu_attention;
  AttentionBatch transit_attention;           // rows counted from the first of them
  std::vector<DecodeSequence> cpu_sequences;  // of the cpu rows, until their attention has begun
  LogitsWork logits;                          // of the main sub-batch, then of riders that end their token
  size_t first_rider_result = 0;

  // Set by MainPass.
  GraphShape graph;                     // that replays them; empty: op by op
  std::optional<RowBatch> batch;        // absent: no rows
  int32_t* device_token_ids = nullptr;  // of all rows
  int32_t* device_positions = nullptr;  // the same

  int64_t num_rows() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t transit_begin() const { return num_gpu_rows; }
  int64_t cpu_begin() const { return num_gpu_rows + num_transit_rows; }
};

// Lays out the rows of input->plan.main, whose block tables it takes. block_size: of both tiers. transit: has
// begun; null without a cpu tier. num_filled: rows up to which they are filled up; at least as many.
MainRows LayOutMainRows(IterationInput* input, int64_t block_size, KvTransit* transit, int64_t num_filled);

// Room for num_rider_rows riders behind them. Those of the first boundary bring their inputs, those of
// boundary num_layers - 1 are sampled.
void AddRiderRows(const IterationInput& input, std::span<const Rider> riders, int64_t num_layers,
                  int64_t num_rider_rows, MainRows* rows);

// Puts ~i in place of every kTokenToCome of input: result i of `before`, the rows of the iteration whose plan
// is plan_before, is what the token will be.
void FindTokensToCome(const IterationPlan& plan_before, const MainRows& before, IterationInput* input);

// Of a span whose first num_given tokens of logits were given: takes its results from *next on, and moves
// that behind them.
SequenceResult TakeResult(const RowSpan& span, size_t num_given, std::vector<SampledToken>::iterator* next);

// Once the stream has run: appends results in the order of the rows, without riders. cpu_failed: those
// attended in the cpu tier have.
void CollectResults(const IterationInput& input, bool cpu_failed, MainRows* rows,
                    std::vector<SequenceResult>* results);

}  // namespace tandem
