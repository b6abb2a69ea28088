// The end of an iteration: logits of the rows that need them, slice by slice, and sampling.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/sampled_token.h"
#include "device/device.h"
#include "execute/int_inputs.h"
#include "execute/pooling_stage.h"
#include "model/decoder.h"
#include "ops/ops.h"
#include "plan/iteration_input.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Which rows of a batch are sampled, and for whom. results: filled when the stream has run; same order as
// rows.
struct LogitsWork {
  std::vector<int32_t> row_indices;
  std::vector<SampleRow> sample_rows;
  std::vector<SampledToken> results;
  const int32_t* device_indices = nullptr;
  PoolingWork pooling;

  // The rows of a span that give logits or an embedding; first_row: that of its first token. input outlives
  // the work.
  void AddSpan(int32_t first_row, const RowSpan& span, const SpanInput& input);
};

class LogitsStage {
 public:
  // max_rows: rows of all LogitsWork of an iteration at most. slice_rows: rows of logits in memory at once.
  static Result<std::unique_ptr<LogitsStage>> Create(Device* device, const Decoder* decoder, Ops* ops,
                                                     int64_t max_rows, int64_t slice_rows);
  static size_t BytesFor(const Decoder& decoder, int64_t slice_rows);
  int64_t slice_rows() const { return slice_rows_; }

  // masks_ready: IterationInput's.
  void BeginIteration(Flag* masks_ready) {
    inputs_.Clear();
    masks_ready_ = masks_ready;
    pooling_.BeginIteration();
  }
  // Registers the row indices of work; all works of an iteration before Upload.
  void Prepare(LogitsWork* work);
  void Upload(Stream& stream) const { inputs_.Upload(stream); }

  // Final norm, embeddings, lm_head and sampling of a batch that has passed its last layer. work and batch
  // stay alive until the stream has run. Of shards only rank 0 samples: its results count, and what it has
  // drawn goes to the others.
  void Run(Stream& stream, RowBatch* batch, LogitsWork* work) const;

  // Run in two steps, with products of every row of a batch of at most slice_rows: the first may be part of a
  // graph. num_rows: of that batch; work names any of them.
  void RunProducts(Stream& stream, RowBatch* batch) const;
  void SampleFrom(Stream& stream, int64_t num_rows, LogitsWork* work) const;

  // Device memory: of the work run last, the token of every row, in order.
  const int32_t* drawn() const { return drawn_.as<int32_t>(); }

  // Embeddings of works that have run.
  const PoolingStage& pooling() const { return pooling_; }

 private:
  LogitsStage(const Decoder* decoder, Ops* ops) : decoder_(decoder), ops_(ops) {}

  MatrixView LogitsOf(int64_t num_rows) const;
  void Sample(Stream& stream, const SampleArgs& args) const;

  const Decoder* decoder_;
  Ops* ops_;
  IntInputs inputs_;
  Buffer gathered_memory_;
  Buffer logits_memory_;
  Buffer drawn_;
  int64_t slice_rows_ = 0;
  Flag* masks_ready_ = nullptr;
  PoolingStage pooling_;
};

}  // namespace tandem
