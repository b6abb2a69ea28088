// What the work tends to when it goes on as it is: how many requests the cpu tier should hold, and what a
// prefilled and a decoded token are worth.
//
// The rate X(c) of decoded tokens in such a steady state (perf/steady_times.h) rises with the c rows of the
// cpu tier until the CPU's attention no longer hides behind the GPU's work. Requests beyond that point would
// only wait, and make the end of a burst longer.
#pragma once

#include <cstdint>

#include "perf/layer_costs.h"
#include "perf/steady_times.h"
#include "planning/planner_tuning.h"

namespace tandem {

// How the cpu tier's attention and the GPU's work overlap.
enum class Overlap {
  kAsymmetric,    // two sub-batches alternate layer by layer (NEO section 3.1)
  kAsynchronous,  // cohorts ride (APEX section 3.3)
};

// gpu_rows: that the full gpu tier holds.
struct SteadyWork : SteadyMix {
  double max_cpu_rows = 0;      // that the cpu tier and the limits allow
  double max_rows = 0;          // of an iteration
  double max_iteration_us = 0;  // 0: no limit
  double present_cpu_rows = 0;  // decodes that the cpu tier has already
  double num_requests = 0;      // that are here, waiting ones too; 0: there is no end of them
  double num_waiting = 0;       // of those, the ones that wait
};

struct OperatingPoint {
  // c, the fewest that are worth having, as FindOperatingPoint says; 0: the CPU is of no noticeable use.
  int64_t cpu_rows = 0;
  double rate = 0;       // X there, decoded tokens a microsecond
  double best_rate = 0;  // with any number of rows
  double iteration_us = 0;
  // Microseconds of such a steady state that one token stands for. decoded + r * prefilled = 1 / X.
  double prefilled_token_us = 0;
  double decoded_token_us = 0;  // not below prefilled_token_us
};

// What a decoded token is worth at this rate X.
double DecodedTokenUs(const SteadyWork& work, double prefilled_token_us, double rate);
// With two sub-batches filling and draining have a price: of n requests that are here, k of which are yet to
// be brought in, the tier is full for all but k / n of their time. What c rows make more than none counts for
// the rest of it alone, so that more rows that promise little more are not filled in for a run that they are
// most of. And the fewest cpu rows with nearly the best X must be worth it over none. Where half of these
// rows are there already they need not: with requests of many lengths X comes and goes, and a cpu tier that
// is emptied and filled again costs more.
OperatingPoint FindOperatingPoint(const SteadyWork& work, Overlap overlap, const LayerCosts& costs,
                                  const PlannerTuning& tuning = {});
// X with so many rows in the cpu tier.
double SteadyRate(const SteadyWork& work, double cpu_rows, Overlap overlap, const LayerCosts& costs);

}  // namespace tandem
