#include "planning/copy_down.h"

#include <algorithm>

#include "base/largest_that.h"

namespace tandem {
namespace {

int64_t MarginOf(const ScheduleState& state, const CapacityView& capacity, const PlannerTuning& tuning) {
  const auto tier_blocks = static_cast<double>(capacity.total_blocks(Tier::kGpu));
  const double request_blocks = state.mean_context / static_cast<double>(capacity.block_size());
  return static_cast<int64_t>(std::min(tier_blocks, std::max(tuning.copied_down_of_tier * tier_blocks,
                                                             tuning.copied_down_requests * request_blocks)));
}

bool CanCopy(const ScheduleState& state, const CapacityView& capacity) {
  return state.cpu_tier_usable && capacity.total_blocks(Tier::kCpu) > 0;
}

}  // namespace

bool CopiesPay(const ScheduleState& state, const PlannerTuning& tuning) {
  return state.cached_share >= tuning.copied_down_from_share;
}

CopyDown CopyDownBeside(const PlanningInput& input, double us) {
  const CapacityView& capacity = input.capacity;
  if (us == 0 || !CanCopy(input.state, capacity)) return {};
  const int64_t margin = MarginOf(input.state, capacity, input.tuning);
  const int64_t num_without_loss = capacity.blocks_without_loss(Tier::kGpu);
  const int64_t num_left = capacity.free_blocks(Tier::kGpu) - num_without_loss;
  const bool pays = CopiesPay(input.state, input.tuning);
  // Where it does not pay, many at once, not some in each iteration: an iteration with copies is not enqueued
  // ahead. Where it does, prompts may wait for it.
  if (num_left == 0 || num_without_loss >= (pays ? margin : margin / 2)) return {};
  const double most_us =
      input.tuning.copied_down_of_layer * us / static_cast<double>(input.costs.num_layers());
  const int64_t max_blocks = LargestThat(std::min(margin, num_left), [&](int64_t num_blocks) {
    return input.costs.SwapUs(num_blocks * capacity.block_size()) <= most_us;
  });
  return {.margin = margin,
          .max_blocks = std::max<int64_t>(1, max_blocks),
          .one_in = pays ? 1 : input.tuning.copied_down_one_in};
}

int64_t BlocksLeftToCopies(const ScheduleState& state, const TierBooks& books) {
  const CapacityView& capacity = books.capacity();
  if (!CanCopy(state, capacity) || !CopiesPay(state, books.tuning()) || books.num_sequences() == 0) return 0;
  const int64_t num_without_loss = capacity.blocks_without_loss(Tier::kGpu);
  if (num_without_loss >= MarginOf(state, capacity, books.tuning())) return 0;
  return capacity.free_blocks(Tier::kGpu) - num_without_loss;
}

}  // namespace tandem
