#include "execute/cohort.h"

#include <utility>

namespace tandem {

Result<std::unique_ptr<Cohort>> Cohort::Create(Device* device, const Decoder& decoder,
                                               std::vector<DecodeRow> rows) {
  auto cohort = std::make_unique<Cohort>();
  const auto num_rows = static_cast<int64_t>(rows.size());
  cohort->rows = std::move(rows);
  TANDEM_ASSIGN_OR_RETURN(cohort->buffers, RowBuffers::Allocate(device, decoder, num_rows));
  // Token ids, positions.
  TANDEM_ASSIGN_OR_RETURN(cohort->inputs, IntInputs::Allocate(device, 2 * num_rows));
  cohort->batch = std::make_unique<RowBatch>(cohort->buffers, num_rows);
  cohort->ready = device->CreateFlag();
  cohort->done = device->CreateFlag();
  return cohort;
}

}  // namespace tandem
