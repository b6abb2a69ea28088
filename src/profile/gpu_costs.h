// Measures what the compute stream does, of all shards at once: they may share memory or cores.
#pragma once

#include <vector>

#include "base/result.h"
#include "perf/cost_table.h"
#include "profile/cost_sampler.h"
#include "profile/profile_parts.h"

namespace tandem {

// Each begins a section of the sampler with the given share of its budget. Errors: kResourceExhausted.

// Pre- and post-projection of several layers in turn, so that no cache holds their weights. Of a shard
// without what the others add.
Result<std::vector<CostPoint>> MeasureLinear(const ProfileParts& parts, double share, CostSampler* sampler);
// Decodes of equal context, as many as the gpu tier holds.
Result<std::vector<CostLine>> MeasureGpuDecodeAttention(const ProfileParts& parts, double share,
                                                        CostSampler* sampler);
// One chunk at a time.
Result<std::vector<CostLine>> MeasurePrefillAttention(const ProfileParts& parts, double share,
                                                      CostSampler* sampler);
// Embedding, final norm, lm_head and greedy sampling, of all shards with what they exchange, and a guess at
// what the host adds to an iteration.
Result<std::vector<CostPoint>> MeasureOutsideLayers(const ProfileParts& parts, double share,
                                                    CostSampler* sampler);

// Numbers of rows that MeasureLinear measures.
std::vector<int64_t> LinearRowCounts(int64_t max_rows);

// Contexts to measure decodes of `rows` rows at: some of those that matter, and the longest that fits.
// max_tokens: of all rows together.
std::vector<int64_t> DecodeContexts(int64_t rows, int64_t max_tokens, int64_t max_context,
                                    int64_t block_size);

}  // namespace tandem
