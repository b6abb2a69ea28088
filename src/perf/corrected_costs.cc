#include "perf/corrected_costs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "perf/time_model.h"

namespace tandem {
namespace {

constexpr double kMinFactor = 0.25;
constexpr double kMaxFactor = 4.0;
// A single measured time counts as at most this many times the predicted one, or its inverse.
constexpr double kMaxStepRatio = 2.0;

// Weight of an observation: of the n-th 1 / n while there are few, then constant, so that a factor follows
// the machine within some tens of iterations.
constexpr double kWeight = 0.04;
// The first iterations run into cold caches and clocks.
constexpr int64_t kColdIterations = 2;
constexpr double kColdWeight = 0.02;
// Of an observation beyond kMaxStepRatio, unless it is one of so many in a row: then the table is wrong.
constexpr double kOutlierWeight = 0.004;
constexpr int64_t kOutliersBelieved = 8;

// Of the logarithm of a factor, for each iteration that says nothing about it, once it is forgotten.
constexpr double kFade = 0.995;
// Iterations without any of a kind until what was learned of it is forgotten the first time: about as many as
// the cpu tier takes to fill, which is what trying it again costs.
constexpr double kKept = 2'000;
// After so many it is known whether a kind is as before: within so much of the logarithm of its factor.
constexpr int64_t kJudged = 100;
constexpr double kAsBefore = 0.03;
// Times its factor in iterations op by op: the GPU's in hybrid ones at most. Played: 1.05 is as good.
constexpr double kMostBesideCpu = 1.1;
// Share of the GPU in a hybrid iteration from which on that says something about it.
constexpr double kLeastGpuShare = 0.5;
// Observations that what is thought of a kind before any counts for.
constexpr double kGuesses = 10;
// Of the newest value in a kind's factor: strategies that are chosen by it are not to follow the noise of
// iterations.
constexpr double kSlowWeight = 0.004;

// Of the newest of num_observations in a mean over many.
double SlowWeight(int64_t num_observations) {
  return std::max(kSlowWeight, 1 / (kGuesses + static_cast<double>(num_observations)));
}

double Scaled(double factor, double log_step) {
  return std::clamp(factor * std::exp(log_step), kMinFactor, kMaxFactor);
}

}  // namespace

IterationMode CorrectedCosts::ModeOf(const IterationLoad& load, bool as_graph) {
  if (load.main_cpu_rows > 0 || load.cohort_rows > 0) return IterationMode::kHybrid;
  if (load.rider_rows > 0)
    return as_graph ? IterationMode::kGraphWithRiders : IterationMode::kOpByOpWithRiders;
  return as_graph ? IterationMode::kGraph : IterationMode::kOpByOp;
}

IterationKind CorrectedCosts::KindOf(IterationMode mode) {
  switch (mode) {
    case IterationMode::kGraph:
    case IterationMode::kOpByOp:
      return IterationKind::kGpuOnly;
    case IterationMode::kHybrid:
      return IterationKind::kPipelined;
    case IterationMode::kGraphWithRiders:
    case IterationMode::kOpByOpWithRiders:
      break;
  }
  return IterationKind::kRiding;
}

double CorrectedCosts::IterationFactor(IterationKind kind) const {
  return kind_factor(kind) / hybrid_factor();
}

double CorrectedCosts::PredictUs(const IterationLoad& load, IterationMode mode) const {
  return TimeModel(*this).IterationWithCopiesUs(load) * gpu_factor(mode) / hybrid_factor();
}

bool CorrectedCosts::Kind::is_forgotten() const {
  return static_cast<double>(num_away) > kKept * std::sqrt(1.0 + static_cast<double>(num_as_before));
}

void CorrectedCosts::Kind::Observe(double took) {
  if (is_forgotten()) {
    // Left again before it was known: it was no better.
    if (num_here > 0 && num_here < kJudged) ++num_as_before;
    num_here = 0;
  }
  num_away = 0;
  ++num_observations;
  ++num_here;
  factor += SlowWeight(num_here) * (took - factor);
  if (num_here < kJudged) return;
  if (num_here == kJudged && left_at > 0)
    num_as_before = std::abs(std::log(factor / left_at)) < kAsBefore ? num_as_before + 1 : 0;
  left_at = factor;
}

void CorrectedCosts::Fade(IterationMode mode, double towards) {
  double& factor = gpu_factors_[static_cast<size_t>(mode)];
  factor = towards * std::pow(factor / towards, kFade);
}

void CorrectedCosts::LearnKinds(IterationMode mode, double ratio) {
  Kind& own = kind_of(KindOf(mode));
  const double before = own.factor;
  own.Observe(gpu_factor(mode) * ratio);
  // What changes in a kind that is known is the machine, unless another cost takes it over; and one of which
  // nothing is known is as the others.
  const bool is_known = own.num_here > kJudged && !(mode == IterationMode::kHybrid && LearnsHandOver());
  for (Kind& kind : kinds_) {
    if (&kind == &own || (kind.num_observations > 0 && !is_known)) continue;
    kind.factor *= own.factor / before;
    kind.left_at *= own.factor / before;
  }
  bool keeps_cpu = false;
  for (const IterationKind which : {IterationKind::kPipelined, IterationKind::kRiding}) {
    Kind& kind = kind_of(which);
    keeps_cpu = keeps_cpu || !kind.is_forgotten();
    if (&kind == &own) continue;
    ++kind.num_away;
    if (!kind.is_forgotten()) continue;
    kind.factor = own.factor * std::pow(kind.factor / own.factor, kFade);
    if (which == IterationKind::kPipelined) {
      Fade(IterationMode::kHybrid, gpu_factor(mode));
      hand_over_us_ *= kFade;
      num_hand_overs_ = 0;
    } else {
      Fade(IterationMode::kGraphWithRiders, gpu_factor(IterationMode::kGraph));
      Fade(IterationMode::kOpByOpWithRiders, gpu_factor(IterationMode::kOpByOp));
    }
  }
  if (!keeps_cpu) cpu_factor_ = std::pow(cpu_factor_, kFade);
}

double CorrectedCosts::StepFor(double ratio, Trust* trust) {
  ++trust->num_observations;
  const double log_ratio = std::clamp(std::log(ratio), -std::log(kMaxStepRatio), std::log(kMaxStepRatio));
  if (ratio > kMaxStepRatio || ratio < 1 / kMaxStepRatio) {
    const int64_t sign = ratio > 1 ? 1 : -1;
    trust->num_outliers = trust->num_outliers * sign > 0 ? trust->num_outliers + sign : sign;
    // An outlier says nothing about how well the factor is known.
    --trust->num_observations;
    return (std::abs(trust->num_outliers) >= kOutliersBelieved ? kWeight : kOutlierWeight) * log_ratio;
  }
  trust->num_outliers = 0;
  const int64_t warm = trust->num_observations - kColdIterations;
  return (warm <= 0 ? kColdWeight : std::max(kWeight, 0.5 / static_cast<double>(warm))) * log_ratio;
}

void CorrectedCosts::LearnMode(IterationMode mode, double step) {
  const auto own = static_cast<size_t>(mode);
  for (size_t other = 0; other < kNumIterationModes; ++other) {
    // A mode of which little is known goes along: the machine is slower or faster than the table for all.
    const double along =
        other == own ? 1.0 : 1.0 / (1.0 + static_cast<double>(gpu_trust_[other].num_observations));
    gpu_factors_[other] = Scaled(gpu_factors_[other], along * step);
  }
  double& hybrid = gpu_factors_[static_cast<size_t>(IterationMode::kHybrid)];
  hybrid = std::min(hybrid, kMostBesideCpu * gpu_factor(IterationMode::kOpByOp));
}

bool CorrectedCosts::LearnsHandOver() const {
  // Iterations that took a little less move it a little below.
  constexpr double kNearly = 0.999;
  return hand_over_us_ > 0 ||
         hybrid_factor() >= kNearly * kMostBesideCpu * gpu_factor(IterationMode::kOpByOp);
}

void CorrectedCosts::LearnHandOver(double over_us) {
  if (!LearnsHandOver()) return;
  ++num_hand_overs_;
  hand_over_us_ = std::max(0.0, hand_over_us_ + SlowWeight(num_hand_overs_) * over_us);
}

void CorrectedCosts::Observe(const IterationLoad& load, bool as_graph, double iteration_us,
                             double cpu_attention_us) {
  const IterationMode mode = ModeOf(load, as_graph);
  const double predicted_us = PredictUs(load, mode);
  const double predicted_cpu_us = TimeModel(*this).CpuWorkUs(load);
  if (std::isfinite(iteration_us) && iteration_us > 0 && predicted_us > 0) {
    ++prediction_.num_iterations;
    prediction_.predicted_us += predicted_us;
    prediction_.error_us += std::abs(iteration_us - predicted_us);
    const TimeModel time(*this);
    // Copies that it waits for say nothing about the GPU.
    const bool waits_for_copies = time.IterationWithCopiesUs(load) > time.IterationUs(load);
    const double gpu_share = mode == IterationMode::kHybrid ? time.GpuShare(load) : 1.0;
    // Nor does one that is rather the CPU's: the factor would grow until the GPU were the longer part.
    const double share = waits_for_copies || gpu_share < kLeastGpuShare ? 0 : gpu_share;
    const double ratio = iteration_us / predicted_us;
    const double counted = std::clamp(ratio, 1 / kMaxStepRatio, kMaxStepRatio);
    if (mode == IterationMode::kHybrid && !waits_for_copies)
      LearnHandOver((counted - 1) * predicted_us / static_cast<double>(num_layers()));
    LearnKinds(mode, counted);
    LearnMode(mode, share * StepFor(ratio, &gpu_trust_[static_cast<size_t>(mode)]));
  }
  if (std::isfinite(cpu_attention_us) && cpu_attention_us > 0 && predicted_cpu_us > 0) {
    cpu_factor_ = Scaled(cpu_factor_, StepFor(cpu_attention_us / predicted_cpu_us, &cpu_trust_));
  }
}

}  // namespace tandem
