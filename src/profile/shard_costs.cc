#include "profile/shard_costs.h"

#include <cstddef>
#include <cstdint>

#include "model/row_batch.h"
#include "profile/gpu_costs.h"
#include "profile/shard_timer.h"

namespace tandem {
namespace {

// In a row, as in a few layers: no single meeting of the shards decides.
constexpr int kSumsPerRun = 8;

}  // namespace

Result<std::vector<CostPoint>> MeasureAllReduce(const ProfileParts& parts, double share,
                                                CostSampler* sampler) {
  TANDEM_ASSIGN_OR_RETURN(ShardTimer timer, ShardTimer::Create(parts));
  const std::vector<ShardParts> shards = ShardsOf(parts);
  const auto sum = [&](size_t rank, int64_t num_rows) {
    const ShardParts& shard = shards[rank];
    shard.decoder->collective()->AllReduce(*shard.compute, RowBatch(*shard.rows, num_rows).delta);
  };
  // Zeros, which stay what they are however often they are summed.
  OnAllShards(parts, [&](size_t rank) {
    const ShardParts& shard = shards[rank];
    shard.ops->FillRandom(*shard.compute, RowBatch(*shard.rows, parts.max_rows).delta, {});
  });
  const std::vector<int64_t> counts = LinearRowCounts(parts.max_rows);
  sampler->BeginSection("sums over the shards", share, static_cast<int64_t>(counts.size()));
  std::vector<CostPoint> points;
  for (const int64_t count : counts) {
    const double growth =
        points.empty() ? 1.0 : static_cast<double>(count) / static_cast<double>(points.back().count);
    if (!sampler->HasTimeFor(growth)) break;
    const auto meet = [&](size_t rank) { sum(rank, 1); };
    const auto sums = [&](size_t rank) {
      for (int i = 0; i < kSumsPerRun; ++i) sum(rank, count);
    };
    const double us = sampler->MedianUs(
        [&](bool warm) { return warm ? timer.TimeEnqueuedUs(sums, meet) : timer.TimeUs(sums); });
    points.push_back({count, us / kSumsPerRun});
  }
  return points;
}

}  // namespace tandem
