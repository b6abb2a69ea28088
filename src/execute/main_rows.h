// The main sub-batch of one iteration: its rows on their way through the layers, and what comes out of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/sampled_token.h"
#include "execute/decode_graphs.h"
#include "execute/int_inputs.h"
#include "execute/kv_transit.h"
#include "execute/logits_stage.h"
#include "execute/riding.h"
#include "kv/kv_books.h"
#include "model/row_batch.h"
#include "ops/attention.h"
#include "plan/iteration_plan.h"
#include "request/request.h"

namespace tandem {

struct SequenceResult {
  SequenceId sequence = 0;
  int64_t num_computed = 0;  // tokens in the cache after the iteration
  std::optional<SampledToken> token = std::nullopt;
  // Of prompt tokens [request.num_reported_prompt_logprobs + 1, ...), as far as this chunk reached.
  std::vector<SampledToken> prompt_logprobs = {};
  // Its CPU attention did not end: nothing of the above holds.
  bool failed = false;
};

using FindRequest = std::function<const Request&(SequenceId)>;

// Rows, in this order:
//
//   [0, num_gpu_rows)    prefills to the gpu tier, gpu decodes
//   num_transit_rows     prefills to the cpu tier
//   num_cpu_rows         cpu decodes
//                        in a graph: rows for nothing up to its size
//   num_rider_rows       room for riders, of which each boundary has its own (execute/riding.h)
struct MainRows {
  int64_t num_gpu_rows = 0;
  int64_t num_transit_rows = 0;
  int64_t num_cpu_rows = 0;
  int64_t num_rider_rows = 0;
  int64_t rider_begin = 0;
  GraphShape graph;  // that replays them; empty: op by op
  std::unique_ptr<RowBatch> batch;
  int32_t* positions = nullptr;  // device memory, of all rows
  LogitsWork logits;             // of the main sub-batch, then of riders that end their token
  size_t first_rider_result = 0;
  AttentionBatch gpu_attention;
  AttentionBatch transit_attention;  // rows counted from the first of them

  int64_t transit_begin() const { return num_gpu_rows; }
  int64_t cpu_begin() const { return num_gpu_rows + num_transit_rows; }
};

// Lays out the rows of main, and of riders behind them. The blocks of main are reserved; transit has begun.
// graph: that it is laid out for, or an empty one. Fills inputs, which the caller uploads. riding: null
// without a cpu tier.
MainRows PrepareMainRows(const MainSubBatch& main, const GraphShape& graph, const KvBooks& books,
                         const FindRequest& find_request, const RowBuffers& buffers, IntInputs* inputs,
                         KvTransit* transit, const Riding* riding);

// Once the stream has run. In the order of the rows, without riders.
void CollectResults(const MainSubBatch& main, const FindRequest& find_request, MainRows* rows,
                    std::vector<SequenceResult>* results);

}  // namespace tandem
