// Measures what shards exchange.
#pragma once

#include <vector>

#include "base/result.h"
#include "perf/cost_table.h"
#include "profile/cost_sampler.h"
#include "profile/profile_parts.h"

namespace tandem {

// The sum over the shards of as many rows as MeasureLinear has, as it follows the output and the down
// projection: several in a row, on all shards. Needs parts.others. Begins a section of the sampler with the
// given share of its budget. Errors: kResourceExhausted.
Result<std::vector<CostPoint>> MeasureAllReduce(const ProfileParts& parts, double share,
                                                CostSampler* sampler);

}  // namespace tandem
