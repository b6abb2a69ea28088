#include "planning/decode_room.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "perf/time_model.h"
#include "planning/copy_down.h"

namespace tandem {
namespace {

// The last of those that the predicate names.
template <typename Predicate>
std::optional<size_t> Youngest(const TierBooks& books, Predicate predicate) {
  for (size_t i = books.sequences().size(); i-- > 0;) {
    if (predicate(books.sequences()[i])) return i;
  }
  return std::nullopt;
}

// The gpu tier can take a request of so many blocks that comes back, and all decodes there can grow for a
// while; like prompts: or have the room that is kept beside one.
bool HasRoomToReturn(const ScheduleState& state, const TierBooks& books, int64_t num_blocks,
                     bool like_prompts) {
  const int64_t left = books.spare_blocks(Tier::kGpu) - num_blocks;
  if (left < 0) return false;
  const int64_t num_others = books.num_sequences(Tier::kGpu);
  if (num_others == 0) return true;
  int64_t kept = state.limits.reserve_blocks + books.GrowthAhead(Tier::kGpu) + 1;
  if (like_prompts) {
    const int64_t most = books.tuning().MostBlocksKept(books.total_blocks(Tier::kGpu));
    kept = std::min(kept, state.gpu_blocks_to_keep(num_others, books.block_size(), most));
  }
  return left >= kept;
}

// Who may come back from the cpu tier, first first: those in a hurry, then by the tokens that are left to
// generate for each that is moved, then the oldest; like prompts the oldest first.
std::vector<size_t> OrderOfReturn(const ScheduleState& state, const ReturnRules& rules,
                                  const TierBooks& books) {
  const bool amid_tokens = rules.min_cpu_sequences == 0;
  std::vector<size_t> order;
  for (size_t i = 0; i < books.sequences().size(); ++i) {
    const RunningSequence& each = books.sequences()[i];
    if (!each.decodes_in(Tier::kCpu) || each.moved) continue;
    if (amid_tokens || !each.in_flight) order.push_back(i);
  }
  const auto left_per_moved = [&](size_t i) {
    const RunningSequence& each = books.sequences()[i];
    return static_cast<double>(each.num_left) / static_cast<double>(each.num_tokens);
  };
  if (!rules.like_prompts) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return left_per_moved(a) > left_per_moved(b); });
  }
  if (state.limits.max_tpot_us > 0) {
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t i) { return !books.sequences()[i].flexible; });
  }
  return order;
}

// What comes back from the cpu tier in an iteration.
class Returns {
 public:
  // All outlive it.
  Returns(const ScheduleState& state, const LayerCosts& costs, bool like_prompts, TierBooks* books)
      : state_(state),
        costs_(costs),
        like_prompts_(like_prompts),
        books_(books),
        left_to_copies_(BlocksLeftToCopies(state, *books)) {
    int64_t gpu_rows = 0;
    int64_t gpu_kv_tokens = 0;
    for (const RunningSequence& each : books->sequences()) {
      if (!each.decodes_in(Tier::kGpu)) continue;
      ++gpu_rows;
      gpu_kv_tokens += each.num_tokens;
    }
    layer_us_ =
        TimeModel(costs).TimesOf({.gpu_decode_rows = gpu_rows, .gpu_kv_tokens = gpu_kv_tokens}).LayerUs();
    for (const Move& move : books->moves()) {
      for (const RunningSequence& each : books->sequences()) {
        if (each.id == move.sequence) moved_tokens_ += each.num_tokens;
      }
    }
  }

  // Moves a decode if there is room for it; its cohort is dropped if it is amid a token. False: there is no
  // row or no time for it, nor for others, or none is to pass it.
  bool Take(size_t index) {
    const RunningSequence& sequence = books_->sequences()[index];
    if (books_->num_decodes(Tier::kGpu) >= state_.limits.max_num_batched_tokens) return false;
    if (!HasRoomToReturn(state_, *books_, sequence.needed_blocks + left_to_copies_, like_prompts_))
      return !like_prompts_;
    // One is always allowed: it may be longer than any iteration hides.
    if (moved_tokens_ > 0 && costs_.SwapUs(moved_tokens_ + sequence.num_tokens) > layer_us_) return false;
    moved_tokens_ += sequence.num_tokens;
    if (sequence.in_flight) books_->DropCohort(sequence.cohort);
    books_->MoveTo(index, Tier::kGpu);
    return true;
  }

 private:
  const ScheduleState& state_;
  const LayerCosts& costs_;
  bool like_prompts_;
  TierBooks* books_;
  int64_t left_to_copies_;
  double layer_us_ = 0;
  int64_t moved_tokens_ = 0;
};

// Of a sequence of the gpu tier. any_may_move: there is a decode that could go to the cpu tier, had that
// room.
PreemptionReason ReasonInGpuTier(const ScheduleState& state, const TierBooks& books, bool any_may_move) {
  if (books.total_blocks(Tier::kCpu) == 0) return PreemptionReason::kGpuTierFull;
  if (!state.cpu_tier_usable) return PreemptionReason::kCpuTierUnusable;
  return any_may_move ? PreemptionReason::kBothTiersFull : PreemptionReason::kGpuTierFull;
}

}  // namespace

void MakeRoomInGpuTier(const ScheduleState& state, TierBooks* books) {
  while (books->spare_blocks(Tier::kGpu) < 0) {
    bool any_may_move = false;
    if (state.cpu_tier_usable) {
      const auto leaves = [](const RunningSequence& each) {
        return each.decodes_in(Tier::kGpu) && each.may_leave();
      };
      auto decode = Youngest(*books, leaves);
      any_may_move = decode.has_value();
      // Where some are in a hurry, the others go.
      if (state.limits.max_tpot_us > 0) {
        const auto flexible =
            Youngest(*books, [&](const RunningSequence& each) { return leaves(each) && each.flexible; });
        if (flexible) decode = flexible;
      }
      if (decode && books->sequences()[*decode].needed_blocks <= books->spare_blocks(Tier::kCpu)) {
        books->MoveTo(*decode, Tier::kCpu);
        continue;
      }
    }
    const auto sequence = Youngest(
        *books, [](const RunningSequence& each) { return each.lives_in(Tier::kGpu) && each.may_leave(); });
    if (!sequence) return;
    books->Preempt(*sequence, ReasonInGpuTier(state, *books, any_may_move));
  }
}

void MakeRoomInCpuTier(const ScheduleState& state, TierBooks* books) {
  if (!state.cpu_tier_usable) {
    for (size_t i = books->sequences().size(); i-- > 0;) {
      const RunningSequence& sequence = books->sequences()[i];
      if (sequence.lives_in(Tier::kCpu) && !sequence.decoding)
        books->Preempt(i, PreemptionReason::kCpuTierUnusable);
    }
    return;
  }
  while (books->spare_blocks(Tier::kCpu) < 0) {
    auto youngest = Youngest(
        *books, [](const RunningSequence& each) { return each.lives_in(Tier::kCpu) && each.may_leave(); });
    if (!youngest) {
      youngest = Youngest(
          *books, [](const RunningSequence& each) { return each.lives_in(Tier::kCpu) && each.in_flight; });
      if (!youngest) return;
      books->DropCohort(books->sequences()[*youngest].cohort);
    }
    const RunningSequence& sequence = books->sequences()[*youngest];
    if (sequence.decoding && HasRoomToReturn(state, *books, sequence.needed_blocks, /*like_prompts=*/false)) {
      books->MoveTo(*youngest, Tier::kGpu);
    } else {
      books->Preempt(*youngest,
                     sequence.decoding ? PreemptionReason::kBothTiersFull : PreemptionReason::kCpuTierFull);
    }
  }
}

void SwapIn(const ScheduleState& state, const LayerCosts& costs, const ReturnRules& rules, TierBooks* books) {
  if (!books->preempted().empty() || books->any_swapped_out()) return;
  if (books->num_sequences(Tier::kCpu) <= rules.min_cpu_sequences) return;
  Returns returns(state, costs, rules.like_prompts, books);
  for (const size_t i : OrderOfReturn(state, rules, *books)) {
    if (books->num_sequences(Tier::kCpu) <= rules.min_cpu_sequences) return;
    if (!returns.Take(i)) return;
  }
}

}  // namespace tandem
