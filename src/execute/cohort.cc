#include "execute/cohort.h"

#include <algorithm>
#include <bit>
#include <utility>

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

void Cohort::Begin(std::vector<DecodeRow> new_rows, const std::vector<int32_t>& token_id_values) {
  rows = std::move(new_rows);
  cursor = kEntry;
  residual =
      MatrixView::Dense(residual_memory.data(), DType::kF32, static_cast<int64_t>(rows.size()), hidden_size);
  std::vector<int32_t> position_values;
  position_values.reserve(rows.size());
  for (const DecodeRow& row : rows) position_values.push_back(static_cast<int32_t>(row.position));
  inputs.Clear();
  token_ids = inputs.Add(token_id_values);
  positions = inputs.Add(position_values);
  cpu_rows->Begin(rows);
}

void Cohort::BorrowActivations(const RowBuffers& activations, int64_t row_begin) {
  batch = std::make_unique<RowBatch>(activations, row_begin, static_cast<int64_t>(rows.size()));
  batch->residual = residual;
  batch->token_ids = token_ids;
  batch->positions = positions;
}

CohortPool::CohortPool(const CpuRowsParts& parts, int64_t max_rows, int64_t max_cohorts)
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
