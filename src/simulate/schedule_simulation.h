// Plays plans against books and queues as the engine does, without model or clock: for tests, and to see what
// a strategy makes of a piece of work (bench/steady_start.h). A plan that breaks a rule gives an error
// instead of the next state.
//
// Riding cohorts join if their CPU attention has ended when the main sub-batch gets to their boundary, by the
// predicted times: it passes the boundaries evenly, and the CPU has what the rows that are waited for leave
// it. Instead they may join at random.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/capacity_view.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "plan/plan_validator.h"
#include "planning/schedule_state.h"
#include "planning/work_shape.h"
#include "policy/strategy.h"
#include "simulate/simulated_cpu.h"

namespace tandem {

class SimulatedBooks : public CapacityView {
 public:
  struct Holding {
    Tier tier = Tier::kGpu;
    int64_t blocks = 0;
  };
  SimulatedBooks(int64_t block_size, int64_t gpu_blocks, int64_t cpu_blocks)
      : block_size_(block_size), total_{gpu_blocks, cpu_blocks}, free_(total_) {}
  int64_t block_size() const override { return block_size_; }
  int64_t total_blocks(Tier tier) const override { return total_[static_cast<size_t>(tier)]; }
  int64_t free_blocks(Tier tier) const override { return free_[static_cast<size_t>(tier)]; }
  int64_t held_blocks(SequenceId sequence) const override;
  std::optional<Tier> tier_of(SequenceId sequence) const override;

  // Grows a sequence to num_blocks, in `tier` if it is new. False: no room, or it is in the other tier.
  bool Reserve(SequenceId sequence, Tier tier, int64_t num_blocks);
  bool MoveTo(SequenceId sequence, Tier to);
  void Release(SequenceId sequence);

 private:
  int64_t block_size_;
  std::array<int64_t, kNumTiers> total_;
  std::array<int64_t, kNumTiers> free_;
  std::unordered_map<SequenceId, Holding> held_;
};

// How often what has happened.
struct SimulationCounts {
  int64_t iterations = 0;
  int64_t gpu_rows = 0;
  int64_t main_cpu_rows = 0;
  int64_t cohort_rows = 0;
  int64_t prefilled_to_gpu = 0;  // tokens
  int64_t prefilled_to_cpu = 0;
  int64_t swaps_in = 0;
  int64_t swaps_out = 0;
  int64_t preemptions = 0;
  int64_t rider_visits = 0;    // of cohorts
  int64_t rider_skips = 0;     // visits that were not made: attention was not done
  int64_t rider_tokens = 0;    // that ended with a visit of a riding cohort
  int64_t transit_visits = 0;  // of cohorts in transit
  int64_t transit_tokens = 0;  // of prompts, that ended so
  int64_t dropped_cohorts = 0;
  std::map<std::string, int64_t> shapes;  // of iterations: which sub-batches had which rows
  double us = 0;                          // predicted
  double cpu_us = 0;                      // of CPU attention
};

class ScheduleSimulation {
 public:
  // costs outlives it; null before the first plan is applied. tuning: what is learned of requests goes by it.
  ScheduleSimulation(SimulatedBooks books, const ScheduleLimits& limits, const LayerCosts* costs,
                     const PlannerTuning& tuning = {});

  void Submit(SequenceId id, int64_t prompt_len, int64_t output_len, bool flexible = false);
  // A request that has run: its tokens are `num_tokens`, num_computed of them in the cache. False: no room.
  // With a prompt_len, others like it have ended before, as the engine takes it of requests that begin amid
  // their output.
  bool AddRunning(SequenceId id, Tier tier, int64_t num_tokens, int64_t num_computed, int64_t final_tokens,
                  std::optional<int64_t> prompt_len = std::nullopt);
  // A cohort of running cpu decodes that are amid a token, whose attention is done, or of chunks in transit.
  // False: a row is none, or there is no room for its token.
  bool AddInFlight(const InFlightCohort& cohort);
  // From now on a riding cohort joins with this probability, whatever the CPU does; at its entry always.
  void JoinAtRandom(double probability, uint32_t seed);
  // The rules of plan/iteration_plan.h, of ScheduleLimits and of Strategy, then the next state.
  Status Apply(const IterationPlan& plan);
  Status Step(Strategy* strategy) { return Apply(strategy->Plan(state_, books_)); }
  bool done() const { return state_.waiting.empty() && state_.running.empty(); }

  void set_costs(const LayerCosts* costs) { costs_ = costs; }
  ScheduleState& state() { return state_; }
  const ScheduleState& state() const { return state_; }
  const SimulatedBooks& books() const { return books_; }
  const SimulationCounts& counts() const { return counts_; }
  int64_t num_finished() const { return num_finished_; }
  SequenceId newest_finished() const { return newest_finished_; }  // the highest id

 private:
  struct Lengths {
    int64_t prompt = 0;
    int64_t final_tokens = 0;
  };
  Status CheckLimits(const IterationPlan& plan) const;
  std::optional<PlannedSequence> FindWaiting(SequenceId id) const;
  Status DropCohorts(const std::vector<CohortId>& dropped);
  // Takes the cohorts through an iteration of `us`. Rows that end their token go to `ended`.
  Status VisitBoundaries(const IterationPlan& plan, double us, std::vector<RowSpan>* ended);
  Status VisitBoundary(const CohortStep& step, int64_t boundary, std::vector<RowSpan>* ended);
  // A visit of all rows, each at its own next layer.
  Status Visit(const CohortStep& step, int64_t layer, std::vector<RowSpan>* ended);
  bool Joins(const CohortStep& step);
  Status CheckRowsInFlight() const;
  Status CheckNotInFlight(SequenceId id) const;
  Status Reserve(SequenceId id, Tier tier);
  // Prompts that only the cpu tier can hold may be passed: they may wait for the transit.
  Status Admit(SequenceId id);
  void Advance(SequenceId id, int64_t num_rows, bool samples);
  void CountEnd(const Lengths& lengths);
  void Count(const IterationPlan& plan);
  ScheduledSequence* Running(SequenceId id);

  SimulatedBooks books_;
  ScheduleState state_;
  const LayerCosts* costs_;
  std::unordered_map<SequenceId, Lengths> lengths_;
  SimulatedCpu cpu_;
  WorkShape shape_;
  // Of each sequence that is amid a token in a cohort: kept apart from the cohorts, to see that these lose
  // none.
  std::unordered_map<SequenceId, int64_t> next_layer_;
  std::optional<double> join_probability_;
  std::mt19937 random_;
  SimulationCounts counts_;
  int64_t num_finished_ = 0;
  SequenceId newest_finished_ = 0;
};

}  // namespace tandem
