// Costs of a machine on which the cpu tier pays: engines measure what the machine of the test has, where it
// may pay or not.
#pragma once

#include "perf/analytic_costs.h"

namespace tandem {

// CPU attention hides behind the linear operations, however many rows it has, and linear operations take no
// longer for more rows: whoever can use the cpu tier should.
inline AnalyticCosts CostsWhereTheCpuTierPays() {
  AnalyticCosts costs;
  costs.linear_us = 300;
  costs.linear_token_us = 1;
  costs.gpu_kv_ns = 5;
  costs.prefill_ns = 0.1;
  costs.cpu_us = 10;
  costs.cpu_kv_ns = 20;
  costs.exchange_us = 10;
  costs.exchange_row_us = 0.1;
  costs.swap_ns = 20;
  costs.outside_us = 100;
  return costs;
}

}  // namespace tandem
