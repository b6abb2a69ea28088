// Hidden states on their way to the host: of rows that embeddings are made of, after the final norm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/pooling.h"
#include "base/result.h"
#include "device/device.h"
#include "execute/iteration_result.h"
#include "model/decoder.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Which rows of a batch are wanted, and for whom.
struct PoolingWork {
  struct Rows {
    SequenceId sequence = 0;
    int64_t first_row = 0;  // of the batch
    int64_t num_rows = 0;
    size_t place = 0;  // where the stage keeps them, in rows
  };
  std::vector<Rows> rows;

  // What the embedding takes of a span, if it is of a sequence that is to have one; first_row: that of its
  // first token.
  void AddSpan(int64_t first_row, const RowSpan& span, std::optional<Pooling> pooling);
};

class PoolingStage {
 public:
  // max_rows: of all works of an iteration at most. Errors: kResourceExhausted.
  static Result<PoolingStage> Create(Device* device, const Decoder& decoder, int64_t max_rows);

  void BeginIteration() { num_placed_ = 0; }
  // All works of an iteration before the first runs.
  void Prepare(PoolingWork* work);
  // hidden: of the batch, normed. It stays as it is until the stream has run.
  void Run(Stream& stream, const MatrixView& hidden, const PoolingWork& work) const;
  // Once the stream has run: gives the rows to the results of their sequences, as far as there are such.
  void Collect(const PoolingWork& work, std::vector<SequenceResult>* results) const;

 private:
  std::byte* RowAt(size_t place) const;

  Buffer memory_;  // pinned, [max_rows, hidden] dtype
  DType dtype_ = DType::kF32;
  int64_t hidden_size_ = 0;
  size_t max_rows_ = 0;
  size_t num_placed_ = 0;
};

}  // namespace tandem
