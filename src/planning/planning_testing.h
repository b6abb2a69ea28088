// What plans are made from, in few words, on a machine whose times can be added up by hand; for tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kv/capacity_view.h"
#include "perf/analytic_costs.h"
#include "planning/admission.h"
#include "planning/planning_input.h"
#include "planning/room.h"
#include "planning/schedules.h"
#include "planning/target.h"
#include "planning/tier_books.h"

namespace tandem::testing {

class CountedBlocks : public CapacityView {
 public:
  int64_t block_size() const override { return 10; }
  int64_t total_blocks(Tier tier) const override { return total[static_cast<size_t>(tier)]; }
  int64_t free_blocks(Tier tier) const override {
    int64_t free = total_blocks(tier);
    for (const auto& [id, holding] : held) free -= holding.first == tier ? holding.second : 0;
    return free;
  }
  std::optional<Holding> holding_of(SequenceId id) const override {
    if (!held.contains(id)) return std::nullopt;
    return Holding{held.at(id).first, held.at(id).second};
  }

  CachedPrefix cached_prefix(SequenceId id, Tier tier, int64_t max_tokens) const override {
    const auto found = cached.find({id, tier});
    if (found == cached.end()) return {};
    const int64_t left_out = std::max<int64_t>(0, found->second.num_blocks - max_tokens / block_size());
    return {.num_blocks = found->second.num_blocks - left_out,
            .num_unused = std::max<int64_t>(0, found->second.num_unused - left_out)};
  }
  bool is_coming(SequenceId id, int64_t num_blocks) const override {
    return coming.contains(id) && coming.at(id) == num_blocks;
  }
  bool begin_alike(SequenceId a, SequenceId b, int64_t num_blocks) const override {
    return alike.contains({a, b}) && num_blocks <= alike.at({a, b});
  }
  int64_t shared_tokens(SequenceId a, SequenceId b) const override {
    return shared.contains({a, b}) ? shared.at({a, b}) : 0;
  }
  int64_t blocks_without_loss(Tier tier) const override { return free_blocks(tier) - unused; }

  std::map<std::pair<SequenceId, Tier>, CachedPrefix> cached;
  std::map<std::pair<SequenceId, SequenceId>, int64_t> alike;   // blocks
  std::map<std::pair<SequenceId, SequenceId>, int64_t> shared;  // tokens; the older one first
  std::map<SequenceId, int64_t> coming;
  int64_t unused = 0;  // free blocks that hold something
  std::array<int64_t, kNumTiers> total = {100, 100};
  std::map<SequenceId, std::pair<Tier, int64_t>> held;
};

// Blocks of 10 tokens. Two layers, in each of which
//
//   T_l    100 us up to 100 rows, a row 1 us beyond
//   T_ga   0.1 us a token that a gpu decode reads, prompts nothing
//   T_ca   1 us a token that a cpu decode reads
//
// and nothing else takes time. So a cpu decode of 10 tokens takes 10 us.
struct SmallMachine {
  SmallMachine() {
    costs.layers = 2;
    costs.linear_us = 100;
    costs.linear_token_us = 1;
    costs.gpu_kv_ns = 100;
    costs.cpu_kv_ns = 1000;
    costs.tiles = {};
    state.limits = {.max_num_seqs = 64,
                    .max_num_batched_tokens = 200,
                    .num_layers = 2,
                    .max_transit_tokens = 400,
                    .max_cohort_rows = 64};
    state.prompt_tokens_per_output = 1;
  }

  // Ids are 1, 2, ... over all three. The last of the new ones.
  SequenceId Decode(Tier tier, int64_t num_tokens, int64_t count = 1) {
    for (; count > 0; --count) Run(tier, num_tokens, num_tokens - 1, num_tokens - 1);
    return last_id;
  }
  // A prompt of which num_computed tokens are in the cache. It holds blocks for all.
  SequenceId Begin(Tier tier, int64_t num_tokens, int64_t num_computed) {
    Run(tier, num_tokens, num_computed, num_tokens);
    return last_id;
  }
  SequenceId Wait(int64_t num_tokens, int64_t count = 1) {
    for (; count > 0; --count) state.waiting.push_back({.id = ++last_id, .num_tokens = num_tokens});
    return last_id;
  }
  // Decodes of the cpu tier that are amid a token.
  void PutInFlight(CohortId cohort, int64_t cursor, std::initializer_list<SequenceId> ids) {
    InFlightCohort& added = state.cohorts.emplace_back(InFlightCohort{.cohort = cohort, .cursor = cursor});
    for (const SequenceId id : ids) {
      added.rows.push_back(RowSpan::Decode(id, running(id).num_tokens - 1, Tier::kCpu));
    }
  }
  ScheduledSequence& running(SequenceId id) {
    return *std::find_if(state.running.begin(), state.running.end(),
                         [id](const ScheduledSequence& each) { return each.id == id; });
  }

  PlanningInput input() const { return {aims, state, capacity, costs, tuning}; }
  TierBooks books() const { return {state, capacity, tuning}; }

  Aims aims = {.name = "tested"};
  ScheduleState state;
  CountedBlocks capacity;
  AnalyticCosts costs;
  PlannerTuning tuning;
  SequenceId last_id = 0;

 private:
  void Run(Tier tier, int64_t num_tokens, int64_t num_computed, int64_t num_held) {
    state.running.push_back({.id = ++last_id, .num_tokens = num_tokens, .num_computed = num_computed});
    capacity.held[last_id] = {tier, capacity.BlocksFor(num_held)};
  }
};

// A prefilled token is worth 2 us, a decoded one 10 us.
constexpr Target kSmallTarget = {.point = {.cpu_rows = 100, .prefilled_token_us = 2, .decoded_token_us = 10},
                                 .max_cpu_sequences = 200};

// What the stages before the schedules find. The machine outlives it.
struct Stages {
  Stages(const SmallMachine& machine, const Target& wanted)
      : input(machine.input()),
        target(wanted),
        room(MakeRoom(input, target, machine.books())),
        admission(Admit(input, target, &room)) {}

  Findings findings() const { return {input, target, room, admission}; }

  const PlanningInput input;
  const Target target;
  Room room;
  const Admission admission;
};

inline std::vector<SequenceId> IdsOf(const std::vector<RowSpan>& rows) {
  std::vector<SequenceId> ids;
  ids.reserve(rows.size());
  for (const RowSpan& row : rows) ids.push_back(row.sequence);
  return ids;
}

// The chunks of the first num_tokens tokens of a queue.
inline std::vector<RowSpan> ChunksOf(const PrefillQueue& queue, int64_t num_tokens) {
  IterationPlan plan;
  queue.Write(num_tokens, &plan);
  return plan.main.spans;
}

}  // namespace tandem::testing
