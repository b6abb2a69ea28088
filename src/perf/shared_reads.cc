#include "perf/shared_reads.h"

#include <algorithm>
#include <cmath>

#include "base/kv_layout.h"

namespace tandem {

int64_t SharedReads::Add(const RowSpan& row) {
  const int64_t tokens = KvTokensOf(row);
  if (row.beginning == 0) return tokens;
  const auto found =
      std::ranges::find_if(groups_, [&](const auto& group) { return group.first == row.beginning; });
  if (found == groups_.end()) {
    groups_.emplace_back(row.beginning, 1);
    return tokens;
  }
  found->second = found->second % kRowsPerGroup + 1;
  if (found->second == 1) return tokens;
  const double reads = costs_->SharedReadCost(found->second) - costs_->SharedReadCost(found->second - 1);
  return tokens - row.num_shared + std::llround(reads * static_cast<double>(row.num_shared));
}

int64_t ReadTokensOf(const std::vector<RowSpan>& rows, const LayerCosts& costs) {
  SharedReads reads(costs);
  int64_t tokens = 0;
  for (const RowSpan& row : rows) tokens += reads.Add(row);
  return tokens;
}

double ReadsForRows(int64_t num_rows, const LayerCosts& costs) {
  const int64_t num_left = num_rows % kRowsPerGroup;
  const int64_t num_groups = num_rows / kRowsPerGroup;
  const double whole = static_cast<double>(num_groups) * costs.SharedReadCost(kRowsPerGroup);
  return num_left == 0 ? whole : whole + costs.SharedReadCost(num_left);
}

}  // namespace tandem
