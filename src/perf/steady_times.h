// How long the iterations of a steady state take. Every decoded token is followed by r prompt tokens of the
// requests that replace those that end; g rows decode in the gpu tier, c in the cpu tier.
//
// Asymmetric overlap (NEO section 3.1) decodes all of them, T being time_model.h's:
//
//   T(g, c, p)     p = r (g + c)          rows of the cpu tier cut into sub-batches as suits best
//   X(c) = (g + c) / T
//
// With asynchronous overlap (APEX section 3.3) a row of the cpu tier makes one of the L + 1 visits of a token
// an iteration, if the CPU gets through all of them in that time, else the share f that it gets through:
//
//   T(g, v, p)     v = f c / (L + 1),  p = r (g + v)
//   X(c) = (g + v) / T
//
// Ideal, which nothing beats: weights are read once, the CPU reads without a pause or an exchange beside the
// GPU, what rows have in common for as many of them as it can, and rows are not whole numbers:
//
//   T_gpu(g, c) = L * (T_l((g + c) * (1 + r)) + prefill attention + T_ga(g)) + what is outside the layers
//   T_cpu(c)    = L * T_ca(c)
//   T           = max(T_gpu, T_cpu)
#pragma once

#include <cstdint>

#include "perf/layer_costs.h"
#include "perf/time_model.h"

namespace tandem {

// What a steady state consists of.
struct SteadyMix {
  double prompt_tokens_per_output = 0;  // r
  double mean_context = 1;              // tokens that a decode attends
  double mean_shared = 0;               // of which other decodes have the same ones
  double mean_prompt = 1;
  double gpu_rows = 0;     // g
  double num_cohorts = 1;  // asynchronous: over which the cpu tier's rows are spread at most
};

// Of whole rows.
class SteadyTimes {
 public:
  // Both outlive it.
  SteadyTimes(const SteadyMix& mix, const LayerCosts& costs);

  struct Point {
    double cpu_rows = 0;      // c
    double iteration_us = 0;  // T
    double rate = 0;          // X, decoded tokens a microsecond
  };
  Point Asymmetric(double cpu_rows) const;
  Point Asynchronous(double cpu_rows) const;
  // What a prompt token adds to an iteration that arithmetic bounds.
  double PrefilledTokenUs() const;

 private:
  double num_layers() const { return static_cast<double>(costs_.num_layers()); }
  double AsymmetricUs(double cpu_rows) const;
  // With main_cpu_rows of the cpu_rows in the main sub-batch.
  double LayerUs(double cpu_rows, double main_cpu_rows, double prefill, double gpu_attention_us) const;
  double CpuUs(double rows) const;
  // That rows of one task read (perf/shared_reads.h).
  int64_t ReadTokens(double rows) const;

  const SteadyMix& mix_;
  const LayerCosts& costs_;
  TimeModel time_;
  double prefill_attention_us_;  // a token and layer
  double gpu_attention_us_;      // of the gpu tier's decodes
};

// A workload in the mean of its decoded tokens.
struct IdealMix {
  double prompt_tokens_per_output = 0;  // r
  double prompt_attention_us = 0;       // of those, one layer
  double mean_context = 0;              // tokens that a decode attends
  double mean_shared = 0;               // of which all decodes have the same ones
};

class IdealTimes {
 public:
  // costs outlive it.
  IdealTimes(const IdealMix& mix, const LayerCosts& costs) : mix_(mix), costs_(costs), time_(costs) {}
  // T.
  double IterationUs(double gpu_rows, double cpu_rows) const;

 private:
  int64_t ContextTokens(int64_t num_rows) const;
  // In the cpu tier: what rows share is read for full groups of them.
  int64_t ReadTokens(int64_t num_rows) const;
  double GpuUs(double gpu_rows, double num_rows) const;
  double CpuUs(double cpu_rows) const;

  IdealMix mix_;
  const LayerCosts& costs_;
  TimeModel time_;
};

}  // namespace tandem
