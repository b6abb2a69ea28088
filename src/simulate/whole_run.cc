#include "simulate/whole_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>

#include "base/hashed_uniform.h"
#include "perf/corrected_costs.h"
#include "perf/time_model.h"
#include "policy/staged_strategy.h"
#include "policy/strategy.h"
#include "simulate/schedule_simulation.h"

namespace tandem {
namespace {

// Normally distributed, of mean 0 and variance 1; a function of its argument.
double NormalOf(uint64_t index) {
  // Above 0, at most 1.
  const auto uniform = [index](uint64_t seed) {
    return (static_cast<double>(HashedBits(seed, index) >> 12) + 1) * 0x1p-52;
  };
  return std::sqrt(-2 * std::log(uniform(1))) * std::cos(2 * std::numbers::pi * uniform(2));
}

// Times what a pipelined iteration takes, if the GPU takes `factor` times as long for its part, and a layer
// hand_over_us more.
double PipelinedStretch(const LayerCosts& costs, const IterationLoad& load, double factor,
                        double hand_over_us) {
  const TimeModel time(costs);
  LayerTimes times = time.TimesOf(load);
  const double layer_us = times.LayerUs();
  times.linear_main_us *= factor;
  times.linear_cohort_us *= factor;
  times.gpu_attention_us *= factor;
  const double more_us =
      static_cast<double>(costs.num_layers()) * (times.LayerUs() - layer_us + hand_over_us) +
      (factor - 1) * (load.rider_linear_us + costs.OutsideLayersUs(load.num_sampled));
  return 1 + more_us / time.IterationUs(load);
}

// Costs as the strategy knows them, on a machine that is otherwise.
class LearnedMachine {
 public:
  LearnedMachine(const RunMachine& machine, const LayerCosts& costs)
      : machine_(machine), learned_(&costs), true_costs_(machine.costs != nullptr ? machine.costs : &costs) {}

  const LayerCosts& believed() const { return learned_; }
  const LayerCosts& true_costs() const { return *true_costs_; }
  double Stretch(const IterationLoad& load) {
    const double noise = machine_.noise > 0 ? std::exp(machine_.noise * NormalOf(num_iterations_)) : 1;
    ++num_iterations_;
    const double heat = machine_.heats_up_us > 0 ? std::min(1.0, played_us_ / machine_.heats_up_us) : 1;
    const double all = 1 + (machine_.all - 1) * heat;
    switch (CorrectedCosts::KindOf(CorrectedCosts::ModeOf(load, false))) {
      case IterationKind::kPipelined:
        return noise * PipelinedStretch(*true_costs_, load, all * machine_.pipelined, machine_.hand_over_us);
      case IterationKind::kRiding:
        return noise * all * machine_.riding;
      case IterationKind::kGpuOnly:
        break;
    }
    return noise * all;
  }
  // load: as the machine has it.
  void Learn(const IterationPlan& plan, const IterationLoad& load, double us) {
    played_us_ += us;
    if (!machine_.is_learned) return;
    IterationLoad believed = TimeModel(learned_).LoadOf(plan);
    believed.swapped_tokens = load.swapped_tokens;
    const bool as_graph = load.prefill_tokens == 0;
    learned_.Observe(believed, as_graph, us, TimeModel(*true_costs_).CpuWorkUs(load));
  }

 private:
  const RunMachine machine_;
  CorrectedCosts learned_;
  const LayerCosts* true_costs_;
  uint64_t num_iterations_ = 0;
  double played_us_ = 0;
};

// The requests have the ids 1, 2, ...
class Run {
 public:
  // machine: null, or outlives it, and learns.
  Run(const RunSetup& setup, const LayerCosts& costs, std::unique_ptr<Strategy> strategy,
      std::span<const RunRequest> requests, LearnedMachine* machine)
      : requests_(requests),
        machine_(machine),
        strategy_(std::move(strategy)),
        simulation_(SimulatedBooks(setup.block_size, setup.gpu_tokens / setup.block_size,
                                   setup.cpu_tokens / setup.block_size),
                    setup.limits, &costs, setup.tuning) {
    played_.times.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) played_.times[i].arrival_us = requests[i].arrival_us;
    if (machine_ == nullptr) return;
    simulation_.StretchBy([this](const IterationLoad& load) { return machine_->Stretch(load); });
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Status BeginAmidWork() {
    for (size_t i = 0; i < requests_.size() && requests_[i].tier; ++i) {
      const RunRequest& request = requests_[i];
      const int64_t num_tokens = request.prompt_tokens + request.made_tokens;
      if (!simulation_.AddRunning(IdOf(i), *request.tier, num_tokens, num_tokens - 1,
                                  request.prompt_tokens + request.output_tokens, request.prompt_tokens)) {
        return MakeError(ErrorCode::kResourceExhausted,
                         "the {} tier has no room for request {}, which has begun", TierName(*request.tier),
                         i);
      }
      ++num_submitted_;
    }
    return {};
  }

  Status Play(const RunWindow& window) {
    bool counts = false;
    while (now_us() < window.end_us && HasWork()) {
      if (!counts && now_us() >= window.begin_us) {
        counts = true;
        before_ = Counted();
      }
      const double step_began_us = now_us();
      const IterationPlan plan = strategy_->Plan(simulation_.state(), simulation_.books());
      if (plan.empty()) {
        return MakeError(ErrorCode::kResourceExhausted, "{} finds nothing to do with {} requests waiting",
                         strategy_->name(), simulation_.state().waiting.size());
      }
      if (played_.changes.empty() || played_.changes.back().strategy != plan.promise.strategy)
        played_.changes.push_back({step_began_us, plan.promise.strategy});
      TANDEM_RETURN_IF_ERROR(simulation_.Apply(plan));
      if (machine_ != nullptr) machine_->Learn(plan, simulation_.last_load(), now_us() - step_began_us);
      NoteTimes();
      if (counts) AddMeans(now_us() - step_began_us);
    }
    Finish(Counted());
    return {};
  }

  PlayedRun Played() && { return std::move(played_); }

 private:
  struct Totals {
    double now_us = 0;
    double idle_us = 0;
    SimulationCounts counts;
    int64_t output_tokens = 0;
    int64_t num_finished = 0;
  };
  static SequenceId IdOf(size_t index) { return static_cast<SequenceId>(index) + 1; }
  RunTimes& TimesOf(SequenceId id) { return played_.times[static_cast<size_t>(id) - 1]; }
  const RunRequest& RequestOf(SequenceId id) const { return requests_[static_cast<size_t>(id) - 1]; }
  double now_us() const { return simulation_.counts().us + idle_us_; }

  // Lets those in that are due; waits for the next if there is nothing to do.
  bool HasWork() {
    if (simulation_.done() && num_submitted_ < requests_.size()) {
      idle_us_ = std::max(idle_us_, requests_[num_submitted_].arrival_us - simulation_.counts().us);
      // The clock is a sum, which may be rounded to just before the arrival.
      SubmitNext();
    }
    while (num_submitted_ < requests_.size() && requests_[num_submitted_].arrival_us <= now_us())
      SubmitNext();
    return !simulation_.done();
  }

  void SubmitNext() {
    const RunRequest& request = requests_[num_submitted_];
    simulation_.Submit(IdOf(num_submitted_), request.prompt_tokens, request.output_tokens);
    ++num_submitted_;
  }

  void NoteTimes() {
    for (const ScheduledSequence& each : simulation_.state().running) {
      if (each.num_tokens > RequestOf(each.id).prompt_tokens && !RequestOf(each.id).tier) NoteFirst(each.id);
    }
    for (const EndedSequence& each : simulation_.ended()) {
      if (!RequestOf(each.id).tier) NoteFirst(each.id);
      TimesOf(each.id).end_us = now_us();
      ended_tokens_ += RequestOf(each.id).output_tokens - RequestOf(each.id).made_tokens;
    }
  }
  void NoteFirst(SequenceId id) {
    RunTimes& times = TimesOf(id);
    if (times.first_token_us < 0) times.first_token_us = now_us();
  }

  void AddMeans(double us) {
    for (const ScheduledSequence& each : simulation_.state().running) {
      const auto tier = static_cast<size_t>(simulation_.books().tier_of(each.id).value_or(Tier::kGpu));
      played_.kv_tokens[tier] += us * static_cast<double>(each.num_computed);
      if (each.decoding()) played_.decodes[tier] += us;
    }
  }

  // Those that were preempted have made a part of their output and wait.
  Totals Counted() const {
    Totals totals{now_us(), idle_us_, simulation_.counts(), ended_tokens_, simulation_.num_finished()};
    const auto add = [&](const ScheduledSequence& each) {
      totals.output_tokens +=
          each.num_tokens - RequestOf(each.id).prompt_tokens - RequestOf(each.id).made_tokens;
    };
    for (const ScheduledSequence& each : simulation_.state().running) add(each);
    for (const ScheduledSequence& each : simulation_.state().waiting) add(each);
    return totals;
  }

  void Finish(const Totals& after) {
    const auto tokens_of = [](const SimulationCounts& of) {
      return of.prefilled_to_gpu + of.prefilled_to_cpu;
    };
    played_.us = after.now_us - before_.now_us;
    played_.idle_us = after.idle_us - before_.idle_us;
    played_.iterations = after.counts.iterations - before_.counts.iterations;
    played_.output_tokens = after.output_tokens - before_.output_tokens;
    played_.prefill_tokens = tokens_of(after.counts) - tokens_of(before_.counts);
    played_.num_finished = after.num_finished - before_.num_finished;
    played_.preemptions = after.counts.preemptions - before_.counts.preemptions;
    played_.cpu_us = after.counts.cpu_us - before_.counts.cpu_us;
    played_.parts = after.counts.parts - before_.counts.parts;
    const double busy_us = played_.us - played_.idle_us;
    for (size_t tier = 0; tier < kNumTiers && busy_us > 0; ++tier) {
      played_.kv_tokens[tier] /= busy_us;
      played_.decodes[tier] /= busy_us;
    }
  }

  std::span<const RunRequest> requests_;
  LearnedMachine* machine_;
  std::unique_ptr<Strategy> strategy_;
  ScheduleSimulation simulation_;
  size_t num_submitted_ = 0;
  double idle_us_ = 0;
  int64_t ended_tokens_ = 0;  // outputs of those that have ended
  Totals before_;
  PlayedRun played_;
};

Result<PlayedRun> Play(const RunSetup& setup, const LayerCosts& believed, const LayerCosts& true_costs,
                       std::span<const RunRequest> requests, const RunWindow& window,
                       LearnedMachine* machine) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Strategy> strategy, CreateStrategy(setup.strategy, &believed));
  if (auto* staged = dynamic_cast<StagedStrategy*>(strategy.get())) staged->tuning() = setup.tuning;
  Run run(setup, true_costs, std::move(strategy), requests, machine);
  TANDEM_RETURN_IF_ERROR(run.BeginAmidWork());
  TANDEM_RETURN_IF_ERROR(run.Play(window));
  return std::move(run).Played();
}

}  // namespace

Result<PlayedRun> PlayRun(const RunSetup& setup, const LayerCosts& costs,
                          std::span<const RunRequest> requests, const RunWindow& window) {
  return Play(setup, costs, costs, requests, window, nullptr);
}

Result<PlayedRun> PlayRunOn(const RunMachine& machine, const RunSetup& setup, const LayerCosts& costs,
                            std::span<const RunRequest> requests, const RunWindow& window) {
  LearnedMachine learned(machine, costs);
  return Play(setup, learned.believed(), learned.true_costs(), requests, window, &learned);
}

}  // namespace tandem
