#include "execute/cohort.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

constexpr int64_t kFewestRows = 16;

int64_t RoomFor(int64_t num_rows) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(kFewestRows, num_rows))));
}

// Each cohort takes less than twice its rows, or kFewestRows.
int64_t RowsLimit(int64_t max_rows, int64_t max_cohorts) {
  return 2 * max_rows + kFewestRows * max_cohorts;
}

}  // namespace

void Cohort::Begin(std::vector<RowSpan> new_rows, std::span<SpanInput> row_inputs) {
  TANDEM_CHECK(new_rows.size() == row_inputs.size(), "a cohort of {} rows enters with the inputs of {}",
               new_rows.size(), row_inputs.size());
  rows = std::move(new_rows);
  cursor = kEntry;
  residual =
      MatrixView::Dense(residual_memory.data(), DType::kF32, static_cast<int64_t>(rows.size()), hidden_size);
  std::vector<int32_t> token_id_values;
  std::vector<int32_t> position_values;
  std::vector<DecodeSequence> sequences;
  token_id_values.reserve(rows.size());
  position_values.reserve(rows.size());
  sequences.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    sequences.push_back(AttendedSequence(rows[i], &row_inputs[i]));
    token_id_values.push_back(row_inputs[i].token_ids.front());
    position_values.push_back(static_cast<int32_t>(rows[i].start));
  }
  inputs.Clear();
  token_ids = inputs.Add(token_id_values);
  positions = inputs.Add(position_values);
  cpu_rows->Begin(std::move(sequences));
}

void Cohort::BorrowActivations(const RowBuffers& activations, int64_t row_begin) {
  batch.emplace(activations, row_begin, static_cast<int64_t>(rows.size()));
  batch->residual = residual;
  batch->token_ids = token_ids;
  batch->positions = positions;
}

DecodeSequence AttendedSequence(const RowSpan& row, SpanInput* input) {
  TANDEM_CHECK(row.num_tokens == 1 && input->token_ids.size() == 1,
               "sequence {}: {} rows with {} tokens, and CPU attention attends one token of a sequence",
               row.sequence, row.num_tokens, input->token_ids.size());
  return {.context_len = row.end(), .block_table = std::move(input->block_table)};
}

CohortPool::CohortPool(const SharedParts& parts, int64_t max_rows, int64_t max_cohorts)
    : parts_(parts), max_rows_(max_rows), rows_limit_(RowsLimit(max_rows, max_cohorts)) {}

size_t CohortPool::BytesFor(const Decoder& decoder, int64_t max_rows, int64_t max_cohorts) {
  return static_cast<size_t>(RowsLimit(max_rows, max_cohorts) * decoder.config().hidden_size) * sizeof(float);
}

Status CohortPool::Fill(int64_t num_cohorts) {
  const int64_t num_rows = (max_rows_ + num_cohorts - 1) / num_cohorts;
  for (int64_t i = 0; i < num_cohorts; ++i) {
    TANDEM_ASSIGN_OR_RETURN(auto cohort, Make(num_rows));
    GiveBack(std::move(cohort));
  }
  return {};
}

Result<std::unique_ptr<Cohort>> CohortPool::Take(int64_t num_rows) {
  // The smallest that holds them.
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const bool fits = (*it)->max_rows >= num_rows;
    if (fits && (best == free_.end() || (*it)->max_rows < (*best)->max_rows)) best = it;
  }
  if (best != free_.end()) {
    auto cohort = std::move(*best);
    free_.erase(best);
    return cohort;
  }
  // All that are free are too small: their memory goes into a larger one, before the pool outgrows its limit.
  std::sort(free_.begin(), free_.end(),
            [](const auto& a, const auto& b) { return a->max_rows > b->max_rows; });
  while (!free_.empty() && num_rows_made_ + RoomFor(num_rows) > rows_limit_) {
    num_rows_made_ -= free_.back()->max_rows;
    free_.pop_back();
  }
  return Make(num_rows);
}

Result<std::unique_ptr<Cohort>> CohortPool::Make(int64_t num_rows) {
  auto cohort = std::make_unique<Cohort>();
  cohort->max_rows = RoomFor(num_rows);
  cohort->hidden_size = parts_.decoder->config().hidden_size;
  TANDEM_ASSIGN_OR_RETURN(
      cohort->residual_memory,
      parts_.device->Allocate(static_cast<size_t>(cohort->max_rows * cohort->hidden_size) * sizeof(float),
                              MemoryKind::kDevice, "residuals of a cohort", {.flag = "max-num-seqs"}));
  TANDEM_ASSIGN_OR_RETURN(cohort->inputs, IntInputs::Allocate(parts_.device, 2 * cohort->max_rows));
  TANDEM_ASSIGN_OR_RETURN(cohort->cpu_rows, CpuTierRows::Create(parts_, cohort->max_rows, "cohort"));
  num_rows_made_ += cohort->max_rows;
  return cohort;
}

}  // namespace tandem
