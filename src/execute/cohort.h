// A cohort in flight: cpu-tier rows that advance together, with their own layer cursor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "base/result.h"
#include "base/sampled_token.h"
#include "device/device.h"
#include "execute/cpu_rows.h"
#include "execute/int_inputs.h"
#include "execute/shared_parts.h"
#include "model/row_batch.h"
#include "plan/iteration_input.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Lives from the visit of kEntry to that of the last layer. Between visits its attention is a task of
// CpuAttention, possibly across iterations, and the residual is all that it has on the device.
struct Cohort {
  // Begins a token of rows, at most max_rows of one token each. Takes the block tables of inputs. The caller
  // uploads.
  void Begin(std::vector<RowSpan> new_rows, std::span<SpanInput> row_inputs);
  // For visits of its own in an iteration: rows [row_begin, ...) of activations, with this cohort's residual.
  void BorrowActivations(const RowBuffers& activations, int64_t row_begin);
  // Whether its next visit is that of the last layer.
  bool ends_next(int64_t num_layers) const { return cursor + 1 == num_layers; }
  void Advance(int64_t num_layers) { cursor = ends_next(num_layers) ? kEntry : cursor + 1; }

  int64_t max_rows = 0;
  int64_t hidden_size = 0;
  std::vector<RowSpan> rows;
  int64_t cursor = kEntry;

  Buffer residual_memory;
  MatrixView residual;  // fp32 [rows, hidden]
  IntInputs inputs;     // token ids, positions
  const int32_t* token_ids = nullptr;
  const int32_t* positions = nullptr;
  std::optional<RowBatch> batch;  // that BorrowActivations made
  std::unique_ptr<CpuTierRows> cpu_rows;
};

// A cohort of the plan that rides.
struct Rider {
  size_t step = 0;  // of the plan's cohorts
  Cohort* cohort = nullptr;
};

// What a cohort of the plan has done in an iteration.
struct CohortOutcome {
  int64_t num_visits = 0;
  std::span<SampledToken> tokens;  // of its rows, if it has ended its token
};

// What a row of CPU attention reads; takes the block table of input.
DecodeSequence AttendedSequence(const RowSpan& row, SpanInput* input);

// Cohorts that are not in flight, with their memory: taking one that is there allocates nothing. They come in
// sizes of powers of two, so that a cohort that grows by a few rows finds the memory of one before it.
class CohortPool {
 public:
  // max_rows: of all cohorts in flight together. max_cohorts: into how many they are usually spread.
  CohortPool(const SharedParts& parts, int64_t max_rows, int64_t max_cohorts);

  // Makes what that many cohorts of equal size need. Errors: kResourceExhausted.
  Status Fill(int64_t num_cohorts);
  // Room for cohorts of num_rows rows at least. Errors: kResourceExhausted.
  Result<std::unique_ptr<Cohort>> Take(int64_t num_rows);
  void GiveBack(std::unique_ptr<Cohort> cohort) { free_.push_back(std::move(cohort)); }
  // Rows that all cohorts have room for that the pool has made and not given up.
  int64_t num_rows_made() const { return num_rows_made_; }
  // Device memory that the pool may hold. It exceeds this only where cohorts are many more than max_cohorts
  // and small.
  static size_t BytesFor(const Decoder& decoder, int64_t max_rows, int64_t max_cohorts);

 private:
  Result<std::unique_ptr<Cohort>> Make(int64_t num_rows);

  SharedParts parts_;
  int64_t max_rows_ = 0;
  int64_t rows_limit_ = 0;  // of all that the pool has made
  int64_t num_rows_made_ = 0;
  std::vector<std::unique_ptr<Cohort>> free_;
};

}  // namespace tandem
