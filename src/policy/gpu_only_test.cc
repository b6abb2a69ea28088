// Properties that hold for every state, beside the scenarios of tests/scenarios.

#include "policy/gpu_only.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "plan/plan_printer.h"
#include "plan/plan_validator.h"

namespace tandem {
namespace {

class FakeBooks : public CapacityView {
 public:
  int64_t block_size() const override { return 4; }
  int64_t total_blocks(Tier tier) const override { return tier == Tier::kGpu ? total_ : 0; }
  int64_t free_blocks(Tier tier) const override {
    int64_t free = total_blocks(tier);
    if (tier == Tier::kGpu) {
      for (const auto& [id, blocks] : held_) free -= blocks;
    }
    return free;
  }
  std::optional<Holding> holding_of(SequenceId id) const override {
    if (!held_.contains(id)) return std::nullopt;
    return Holding{Tier::kGpu, held_.at(id)};
  }
  CachedPrefix cached_prefix(SequenceId id, Tier tier, int64_t max_tokens) const override {
    if (tier != Tier::kGpu || !cached_.contains(id)) return {};
    return {.num_blocks = std::min(cached_.at(id), max_tokens / block_size())};
  }
  int64_t total_ = 0;
  std::map<SequenceId, int64_t> held_;
  std::map<SequenceId, int64_t> cached_;  // held by others too
};

// Plays whole workloads against the books: every plan is valid, needs only blocks that are free, and every
// request ends, however small the tier.
TEST(GpuOnlyTest, RandomWorkloadsFinishWithValidPlans) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    FakeBooks books;
    books.total_ = 8 + static_cast<int64_t>(random() % 40);
    ScheduleState state;
    state.limits = {.max_num_seqs = 1 + static_cast<int64_t>(random() % 6),
                    .max_num_batched_tokens = 1 + static_cast<int64_t>(random() % 20),
                    .reserve_blocks = static_cast<int64_t>(random() % 3)};
    std::map<SequenceId, int64_t> final_tokens;
    const int64_t num_requests = 1 + static_cast<int64_t>(random() % 12);
    for (SequenceId id = 1; id <= static_cast<SequenceId>(num_requests); ++id) {
      const int64_t prompt = 1 + static_cast<int64_t>(random() % 16);
      final_tokens[id] = std::min(prompt + 1 + static_cast<int64_t>(random() % 16), books.total_ * 4);
      state.waiting.push_back({.id = id, .num_tokens = prompt, .num_computed = 0});
    }
    GpuOnlyStrategy strategy;
    int iterations = 0;
    while (!final_tokens.empty()) {
      ASSERT_LT(++iterations, 5000) << "no progress";
      const IterationPlan plan = strategy.Plan(state, books);
      const auto find = [&](SequenceId id) -> std::optional<PlannedSequence> {
        const auto same = [id](const ScheduledSequence& sequence) { return sequence.id == id; };
        const auto running = std::find_if(state.running.begin(), state.running.end(), same);
        if (running != state.running.end())
          return PlannedSequence{running->num_tokens, running->num_computed, Tier::kGpu};
        const auto waiting = std::find_if(state.waiting.begin(), state.waiting.end(), same);
        if (waiting == state.waiting.end()) return std::nullopt;
        return PlannedSequence{waiting->num_tokens, 0, std::nullopt};
      };
      const Status valid = ValidatePlan(
          plan, {.num_layers = 2, .max_rows = state.limits.max_num_batched_tokens, .find_sequence = find});
      ASSERT_TRUE(valid.ok()) << valid.error().message << "\n" << PrintPlan(plan);
      ASSERT_FALSE(plan.main.empty()) << "an iteration without work";

      for (const Preemption& preempted : plan.preempted) {
        const SequenceId id = preempted.sequence;
        books.held_.erase(id);
        const auto victim =
            std::find_if(state.running.begin(), state.running.end(),
                         [id](const ScheduledSequence& sequence) { return sequence.id == id; });
        state.waiting.push_front({.id = id, .num_tokens = victim->num_tokens, .num_computed = 0});
        state.running.erase(victim);
      }
      const auto advance = [&](SequenceId id, int64_t num_rows, bool samples) {
        auto found = std::find_if(state.running.begin(), state.running.end(),
                                  [id](const ScheduledSequence& sequence) { return sequence.id == id; });
        if (found == state.running.end()) {
          ASSERT_EQ(state.waiting.front().id, id) << "admitted out of order";
          state.running.push_back(state.waiting.front());
          state.waiting.pop_front();
          found = state.running.end() - 1;
        }
        books.held_[id] = std::max(books.held_blocks(id), books.BlocksFor(found->num_tokens));
        found->num_computed += num_rows;
        if (samples) ++found->num_tokens;
        if (samples && found->num_tokens >= final_tokens.at(id)) {
          books.held_.erase(id);
          final_tokens.erase(id);
          state.running.erase(found);
        }
      };
      for (const RowSpan& span : plan.main.spans)
        advance(span.sequence, span.num_tokens, span.num_sampled() > 0);
      ASSERT_GE(books.free_blocks(Tier::kGpu), 0) << PrintPlan(plan);
    }
    EXPECT_EQ(books.free_blocks(Tier::kGpu), books.total_);
  }
}

TEST(GpuOnlyTest, AttachesToWhatIsCached) {
  FakeBooks books;
  books.total_ = 12;
  books.held_[9] = 5;
  books.cached_ = {{1, 5}};
  ScheduleState state;
  state.limits = {.max_num_seqs = 4, .max_num_batched_tokens = 10};
  state.waiting = {{.id = 1, .num_tokens = 40}};
  const IterationPlan plan = GpuOnlyStrategy().Plan(state, books);
  EXPECT_EQ(PrintPlan(plan), "attach 1 [0, 20) in gpu\nprefill 1 [20, 30)\n")
      << "5 of its 10 blocks are there, 7 free";
}

}  // namespace
}  // namespace tandem
