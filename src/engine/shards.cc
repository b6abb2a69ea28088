#include "engine/shards.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "cpu_attention/cpu_attention.h"
#include "execute/executor.h"

namespace tandem {
namespace {

// A shard that waits for the CPU attention of another is to hear of a stall before it gives that shard up.
constexpr std::chrono::milliseconds kLongestStall{5'000};

ExecutorOptions OptionsOf(const LoadedModel& model, const Shard& shard, ExecutorOptions options) {
  if (shard.is_whole()) return options;
  CpuAttentionOptions& cpu = options.cpu_attention;
  const ShardThreads threads =
      ThreadsOf(shard, cpu.num_threads > 0 ? cpu.num_threads : DefaultCpuAttentionThreads(cpu.leave_cores));
  cpu.num_threads = threads.num_threads;
  cpu.num_cores_taken = threads.num_taken;
  options.stall_timeout = std::min(options.stall_timeout, kLongestStall);
  options.rider_collective = model.collectives->Of(shard.rank, ShardChannel::kRiders);
  return options;
}

}  // namespace

ShardThreads ThreadsOf(const Shard& shard, int num_threads) {
  const int begin = num_threads * shard.rank / shard.size;
  const int end = num_threads * (shard.rank + 1) / shard.size;
  return {.num_threads = std::max(1, end - begin),
          .num_taken = std::max(begin, num_threads < shard.size ? shard.rank : 0)};
}

Result<std::vector<std::unique_ptr<KvMemory>>> CreateShardMemories(const LoadedModel& model,
                                                                   const KvCacheOptions& cache) {
  std::vector<std::unique_ptr<KvMemory>> memories;
  for (const auto& shard : model.shards) {
    KvCacheOptions part = cache;
    part.gpu.shape.num_kv_heads = shard->config().num_kv_heads;
    part.cpu.shape.num_kv_heads = shard->config().num_kv_heads;
    TANDEM_ASSIGN_OR_RETURN(
        auto memory,
        KvMemory::Create(model.backend.DeviceOf(static_cast<int>(memories.size())), part.Layouts()));
    memories.push_back(std::move(memory));
  }
  return memories;
}

Result<std::unique_ptr<WorkerGroup>> CreateWorkerGroup(const LoadedModel& model,
                                                       const std::vector<std::unique_ptr<KvMemory>>& memories,
                                                       const ExecutorOptions& options) {
  std::vector<std::unique_ptr<Executor>> executors;
  for (size_t rank = 0; rank < model.shards.size(); ++rank) {
    const Shard shard = {.rank = static_cast<int>(rank), .size = static_cast<int>(model.shards.size())};
    TANDEM_ASSIGN_OR_RETURN(
        auto executor,
        Executor::Create(model.backend.DeviceOf(shard.rank), model.backend.OpsOf(shard.rank),
                         model.shards[rank].get(), memories[rank].get(), OptionsOf(model, shard, options)));
    executors.push_back(std::move(executor));
  }
  return std::make_unique<WorkerGroup>(std::move(executors), model.collectives.get(),
                                       !model.backend.others.empty());
}

std::vector<ShardParts> OtherShardParts(const LoadedModel& model,
                                        const std::vector<std::unique_ptr<KvMemory>>& memories,
                                        WorkerGroup* workers) {
  std::vector<ShardParts> others;
  for (size_t rank = 1; rank < workers->size(); ++rank) {
    const MeasurementParts executor = workers->of(rank).measurement_parts();
    others.push_back({.device = model.backend.DeviceOf(static_cast<int>(rank)),
                      .ops = model.backend.OpsOf(static_cast<int>(rank)),
                      .decoder = model.shards[rank].get(),
                      .memory = memories[rank].get(),
                      .cpu_attention = workers->of(rank).cpu_attention(),
                      .compute = executor.compute,
                      .rows = executor.rows,
                      .plan = executor.plan,
                      .logits = executor.logits});
  }
  return others;
}

}  // namespace tandem
