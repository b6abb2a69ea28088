// Measures what the cpu tier costs: attention over it, the exchange of rows with it, swaps into and out of
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cpu_attention/cpu_attention.h"
#include "cpu_attention/decode_plan.h"
#include "device/device.h"
#include "perf/cost_table.h"
#include "profile/cost_sampler.h"
#include "profile/profile_parts.h"

namespace tandem {

// Needs parts.cpu_attention and a cpu tier. Shards attend at once, since they share the memory's bandwidth;
// exchange and swaps are rank 0's alone. Each Measure begins a section of the sampler with the given share
// of its budget.
class CpuTierProfiler {
 public:
  // Errors: kResourceExhausted.
  static Result<CpuTierProfiler> Create(const ProfileParts& parts);

  // Decodes of equal context by all workers of all shards, over layers and blocks in turn, so that no cache
  // holds them.
  Result<std::vector<CostLine>> MeasureAttention(double share, CostSampler* sampler);
  // The same rows with all their whole partitions in common, in groups of 1, 2, ... that read at once. Empty
  // where the tier or contexts are too short for it.
  Result<std::vector<CostPoint>> MeasureSharedReads(double share, CostSampler* sampler);
  // Q/K/V to pinned memory, a flag, the host's answer, O back.
  Result<std::vector<CostPoint>> MeasureExchange(double share, CostSampler* sampler);
  // The slower direction.
  Result<std::vector<CostPoint>> MeasureSwap(double share, CostSampler* sampler);

 private:
  // Of a shard that attends.
  struct Side {
    KvMemory* memory = nullptr;
    CpuAttention* workers = nullptr;
    Buffer qkv;  // pinned, [max_rows_, q, k and v], product dtype
    Buffer out;  // pinned, [max_rows_, q], engine dtype
  };
  // One run of a side's attention: rows that its workers wait for, and before them one row, to have them
  // awake as they are between two layers.
  struct SideRun;

  explicit CpuTierProfiler(const ProfileParts& parts) : parts_(parts) {}

  Result<Side> CreateSide(const ShardParts& shard) const;
  // The first read of memory that nobody has written maps a page of zeros and would be far too fast.
  void TouchBlocks(const Side& side) const;
  // Rows of `context` tokens in consecutive blocks. Each `readers` of them have the whole partitions of the
  // first of them.
  std::unique_ptr<DecodePlan> PlanRows(const Side& side, int64_t rows, int64_t context, int64_t first_block,
                                       int64_t readers = 1) const;
  // Blocks of the whole partitions of a context.
  int64_t SharedBlocks(int64_t context) const;
  AttentionTask TaskOf(const Side& side, DecodePlan* plan, int64_t layer, Flag* done, uint32_t value) const;
  // One run of attention, from its flags to its last row on the slowest shard: rows of `context` tokens over
  // the n-th place in layers and blocks. Microseconds.
  double AttendUs(int64_t rows, int64_t context, int64_t readers = 1);

  ProfileParts parts_;
  int64_t max_rows_ = 0;
  int64_t num_layers_ = 0;  // that are used, the first ones
  int64_t num_blocks_ = 0;  // that are used of each, the first ones
  int64_t num_runs_ = 0;
  std::vector<Side> sides_;  // by rank
};

}  // namespace tandem
