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

// Of the logarithm of a factor, for each iteration that says nothing about it.
constexpr double kFade = 0.995;

double Scaled(double factor, double log_step) {
  return std::clamp(factor * std::exp(log_step), kMinFactor, kMaxFactor);
}

}  // namespace

IterationMode CorrectedCosts::ModeOf(const IterationLoad& load, bool as_graph) {
  if (load.main_cpu_rows > 0 || load.cohort_rows > 0) return IterationMode::kHybrid;
  if (load.rider_rows > 0) return as_graph ? IterationMode::kGraphWithRiders : IterationMode::kHybrid;
  return as_graph ? IterationMode::kGraph : IterationMode::kOpByOp;
}

double CorrectedCosts::PredictUs(const IterationLoad& load, IterationMode mode) const {
  return TimeModel(*this).IterationUs(load) * gpu_factor(mode) / hybrid_factor();
}

void CorrectedCosts::Fade(IterationMode mode, double towards) {
  double& factor = gpu_factors_[static_cast<size_t>(mode)];
  factor = towards * std::pow(factor / towards, kFade);
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

void CorrectedCosts::Observe(const IterationLoad& load, bool as_graph, double iteration_us,
                             double cpu_attention_us) {
  const IterationMode mode = ModeOf(load, as_graph);
  const double predicted_us = PredictUs(load, mode);
  const double predicted_cpu_us = TimeModel(*this).CpuWorkUs(load);
  if (std::isfinite(iteration_us) && iteration_us > 0 && predicted_us > 0) {
    ++prediction_.num_iterations;
    prediction_.predicted_us += predicted_us;
    prediction_.error_us += std::abs(iteration_us - predicted_us);
    const double share = mode == IterationMode::kHybrid ? TimeModel(*this).GpuShare(load) : 1.0;
    const auto own = static_cast<size_t>(mode);
    const double step = share * StepFor(iteration_us / predicted_us, &gpu_trust_[own]);
    for (size_t other = 0; other < kNumIterationModes; ++other) {
      // A mode of which little is known goes along: the machine is slower or faster than the table for all.
      const double along =
          other == own ? 1.0 : 1.0 / (1.0 + static_cast<double>(gpu_trust_[other].num_observations));
      gpu_factors_[other] = Scaled(gpu_factors_[other], along * step);
    }
  }
  // What is believed of iterations with cpu rows fades while there are none: costs that looked too dear once
  // would otherwise never be looked at again.
  if (mode != IterationMode::kHybrid) Fade(IterationMode::kHybrid, gpu_factor(mode));
  if (mode != IterationMode::kGraphWithRiders)
    Fade(IterationMode::kGraphWithRiders, gpu_factor(IterationMode::kGraph));
  const bool is_offloading = mode == IterationMode::kHybrid || mode == IterationMode::kGraphWithRiders;
  if (!is_offloading) cpu_factor_ = std::pow(cpu_factor_, kFade);
  if (std::isfinite(cpu_attention_us) && cpu_attention_us > 0 && predicted_cpu_us > 0) {
    cpu_factor_ = Scaled(cpu_factor_, StepFor(cpu_attention_us / predicted_cpu_us, &cpu_trust_));
  }
}

}  // namespace tandem
