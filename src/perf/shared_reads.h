// How much less rows of the cpu tier read that begin in the same blocks: the one place that prices a set of
// rows by what they have in common.
//
// CPU attention reads what rows share once for up to kRowsPerGroup of them (cpu_attention/attended_runs.h),
// and computes with it for each. Costs of CPU attention are of rows that read their own (LayerCosts), so a
// shared read counts as so many tokens of theirs:
//
//             | num_shared | own |
//   1st row   |     1      |  1  |     tokens count once
//   n-th row  | C(n)-C(n-1)|  1  |     C: LayerCosts::SharedReadCost, C(n) <= n
//
// and the row after the last of a group begins the next one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"

namespace tandem {

// The rows of one task, in their order.
class SharedReads {
 public:
  // costs: outlive it.
  explicit SharedReads(const LayerCosts& costs) : costs_(&costs) {}
  // KV tokens that the row adds to what those before it read.
  int64_t Add(const RowSpan& row);

 private:
  const LayerCosts* costs_;
  std::vector<std::pair<uint64_t, int64_t>> groups_;  // RowSpan::beginning, and the rows of the group so far
};

// KV tokens that the rows of one task read.
int64_t ReadTokensOf(const std::vector<RowSpan>& rows, const LayerCosts& costs);

// What num_rows rows take that share a read as far as groups go, in reads for one.
double ReadsForRows(int64_t num_rows, const LayerCosts& costs);

}  // namespace tandem
