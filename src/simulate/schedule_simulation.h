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
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "perf/iteration_load.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "plan/plan_validator.h"
#include "planning/schedule_state.h"
#include "planning/work_shape.h"
#include "policy/strategy.h"
#include "simulate/played_books.h"
#include "simulate/simulated_cpu.h"

namespace tandem {

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
  int64_t recomputed = 0;      // tokens, after a preemption
  int64_t copied_down = 0;     // blocks
  int64_t rider_visits = 0;    // of cohorts
  int64_t rider_skips = 0;     // visits that were not made: attention was not done
  int64_t rider_tokens = 0;    // that ended with a visit of a riding cohort
  int64_t transit_visits = 0;  // of cohorts in transit
  int64_t transit_tokens = 0;  // of prompts, that ended so
  int64_t dropped_cohorts = 0;
  std::map<std::string, int64_t> shapes;  // of iterations: which sub-batches had which rows
  double us = 0;                          // predicted
  double cpu_us = 0;                      // of CPU attention
  TimeParts parts;                        // of us
};

// A request that has ended.
struct EndedSequence {
  SequenceId id = 0;
  int64_t num_cached = 0;  // tokens of its prompt that it found when it began
};

class ScheduleSimulation {
 public:
  // costs outlives it; null before the first plan is applied. tuning: what is learned of requests goes by it.
  ScheduleSimulation(SimulatedBooks books, const ScheduleLimits& limits, const LayerCosts* costs,
                     const PlannerTuning& tuning = {});

  // With these books instead, before anything is submitted. They outlive the simulation.
  void PlayIn(PlayedBooks* books) { other_books_ = books; }

  // beginning: ScheduledSequence's.
  void Submit(SequenceId id, int64_t prompt_len, int64_t output_len, bool flexible = false,
              uint64_t beginning = 0);
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
  // Iterations take times what the costs say of them. load: by these costs.
  using Stretch = std::function<double(const IterationLoad& load)>;
  void StretchBy(Stretch stretch) { stretch_ = std::move(stretch); }
  // The rules of plan/iteration_plan.h, of ScheduleLimits and of Strategy, then the next state.
  Status Apply(const IterationPlan& plan);
  Status Step(Strategy* strategy) { return Apply(strategy->Plan(state_, books())); }
  bool done() const { return state_.waiting.empty() && state_.running.empty(); }

  void set_costs(const LayerCosts* costs) { costs_ = costs; }
  ScheduleState& state() { return state_; }
  const ScheduleState& state() const { return state_; }
  const PlayedBooks& books() const {
    if (other_books_ != nullptr) return *other_books_;
    return counted_books_;
  }
  const SimulationCounts& counts() const { return counts_; }
  int64_t num_finished() const { return num_finished_; }
  SequenceId newest_finished() const { return newest_finished_; }  // the highest id
  // Of the plan applied last, by the costs; moves are counted among what is swapped.
  const IterationLoad& last_load() const { return last_load_; }
  // By the plan applied last.
  const std::vector<EndedSequence>& ended() const { return ended_; }

 private:
  struct Lengths {
    int64_t prompt = 0;
    int64_t final_tokens = 0;
    int64_t cached = 0;         // of the prompt, found at its first beginning
    int64_t ever_computed = 0;  // before a preemption
  };
  PlayedBooks& played_books() {
    if (other_books_ != nullptr) return *other_books_;
    return counted_books_;
  }
  Status Attach(const AttachedPrefix& prefix);
  void Begin(SequenceId id);
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

  SimulatedBooks counted_books_;
  PlayedBooks* other_books_ = nullptr;
  ScheduleState state_;
  const LayerCosts* costs_;
  size_t last_running_ = 0;  // that was asked for, its place
  std::unordered_map<SequenceId, Lengths> lengths_;
  SimulatedCpu cpu_;
  WorkShape shape_;
  // Of each sequence that is amid a token in a cohort: kept apart from the cohorts, to see that these lose
  // none.
  std::unordered_map<SequenceId, int64_t> next_layer_;
  std::optional<double> join_probability_;
  Stretch stretch_;  // null: none
  IterationLoad last_load_;
  std::mt19937 random_;
  SimulationCounts counts_;
  std::vector<EndedSequence> ended_;
  int64_t num_finished_ = 0;
  SequenceId newest_finished_ = 0;
};

}  // namespace tandem
