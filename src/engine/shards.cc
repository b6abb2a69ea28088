#include "engine/shards.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/log.h"
#include "cpu_attention/cpu_attention.h"
#include "engine/cpu_kernel_choice.h"
#include "engine/shard_setup.h"
#include "execute/executor.h"
#include "execute/remote_executor.h"

namespace tandem {
namespace {

// A shard that waits for the CPU attention of another is to hear of a stall before it gives that shard up.
constexpr std::chrono::milliseconds kLongestStall{5'000};

ExecutorOptions OptionsOf(const LoadedModel& model, size_t index, ExecutorOptions options) {
  const Shard shard = model.ShardAt(index);
  if (shard.is_whole()) return options;
  CpuAttentionOptions& cpu = options.cpu_attention;
  const ShardThreads threads = ThreadsOf(model.on_host, shard, cpu.num_threads,
                                         DefaultCpuAttentionThreads(cpu.leave_cores), model.shard_nodes);
  cpu.num_threads = threads.num_threads;
  cpu.nodes = model.NodesAt(index);
  cpu.num_cores_taken = threads.num_taken;
  options.stall_timeout = std::min(options.stall_timeout, kLongestStall);
  options.rider_collective = model.exchange()->Of(shard.rank, ShardChannel::kRiders);
  return options;
}

Result<std::unique_ptr<Executor>> CreateExecutor(const LoadedModel& model, size_t index,
                                                 const KvMemory& memory, const ExecutorOptions& options) {
  const int rank = model.ShardAt(index).rank;
  return Executor::Create(model.backend.DeviceOf(rank), model.backend.OpsOf(rank), model.shards[index].get(),
                          &memory, OptionsOf(model, index, options));
}

}  // namespace

ShardThreads ThreadsOf(const Shard& shard, int num_threads, const std::vector<std::vector<int>>& nodes) {
  const auto of_rank = [&](int rank) {
    const int begin = num_threads * rank / shard.size;
    const int end = num_threads * (rank + 1) / shard.size;
    return std::max(1, end - begin);
  };
  const auto nodes_of = [&](int rank) {
    return nodes.empty() ? std::vector<int>() : nodes[static_cast<size_t>(rank)];
  };
  ShardThreads threads = {.num_threads = of_rank(shard.rank)};
  for (int rank = 0; rank < shard.rank; ++rank) {
    if (nodes_of(rank) == nodes_of(shard.rank)) threads.num_taken += of_rank(rank);
  }
  return threads;
}

ShardThreads ThreadsOf(const std::optional<Shard>& on_host, const Shard& shard, int num_threads, int of_host,
                       const std::vector<std::vector<int>>& nodes) {
  if (!on_host) return ThreadsOf(shard, num_threads > 0 ? num_threads : of_host, nodes);
  return ThreadsOf(*on_host,
                   num_threads > 0 ? std::max(1, num_threads * on_host->size / shard.size) : of_host, nodes);
}

std::optional<Shard> PlaceOnHost(const EngineOptions& options) {
  if (options.processes != nullptr) return options.processes->on_host();
  // The others would be on hosts that are as this one.
  if (!options.lone_shard.empty()) return Shard{};
  return std::nullopt;
}

Result<std::vector<std::unique_ptr<KvMemory>>> CreateShardMemories(const LoadedModel& model,
                                                                   const KvCacheOptions& cache) {
  std::vector<std::unique_ptr<KvMemory>> memories;
  for (const auto& shard : model.shards) {
    KvCacheOptions part = cache;
    part.gpu.shape.num_kv_heads = shard->config().num_kv_heads;
    part.cpu.shape.num_kv_heads = shard->config().num_kv_heads;
    part.cpu_nodes = model.NodesAt(memories.size());
    TANDEM_ASSIGN_OR_RETURN(
        auto memory, KvMemory::Create(model.backend.DeviceOf(static_cast<int>(memories.size())), part));
    memories.push_back(std::move(memory));
  }
  return memories;
}

Result<std::unique_ptr<WorkerGroup>> CreateWorkerGroup(const LoadedModel& model,
                                                       const std::vector<std::unique_ptr<KvMemory>>& memories,
                                                       const ExecutorOptions& options) {
  Processes* const processes = model.processes;
  if (processes != nullptr) {
    const Message setup = SetupMessage(model, *memories.front(), options);
    for (int rank = 1; rank < processes->shard().size; ++rank) processes->Send(rank, setup);
  }
  auto rank0 = CreateExecutor(model, 0, *memories.front(), options);
  TANDEM_RETURN_IF_ERROR(AgreeThatAllIsWell(processes, rank0.ok() ? Status() : rank0.error()));
  std::vector<std::unique_ptr<ShardExecutor>> others;
  for (size_t i = 1; i < model.shards.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(auto executor, CreateExecutor(model, i, *memories[i], options));
    others.push_back(std::move(executor));
  }
  for (int rank = 1; processes != nullptr && rank < processes->shard().size; ++rank)
    others.push_back(std::make_unique<RemoteExecutor>(processes, rank));
  return std::make_unique<WorkerGroup>(std::move(*rank0), std::move(others), model.exchange(),
                                       processes != nullptr || !model.backend.others.empty());
}

Status FollowRank0(EngineOptions options) {
  Processes* const processes = options.processes;
  options.show_progress = false;
  TANDEM_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(&options));
  const std::optional<Message> message = processes->Receive(0, std::nullopt);
  if (!message) return *processes->collectives()->failure();
  if (IsEnd(*message)) return {};
  std::vector<std::unique_ptr<KvMemory>> memories;
  std::unique_ptr<Executor> executor;
  const auto create = [&]() -> Status {
    TANDEM_ASSIGN_OR_RETURN(const ShardSetup setup, ReadSetup(*message, model));
    const bool cpu_tier = setup.cache.cpu.num_blocks > 0;
    // Rank 0 has tried on this host, or there is nothing yet; which kernels attend on the CPU it says.
    ChooseCpuKernels(options, model.first_shard().config(), model.first_shard().dtype(), model.kv_formats,
                     cpu_tier, &model.backend);
    TANDEM_ASSIGN_OR_RETURN(memories, CreateShardMemories(model, setup.cache));
    TANDEM_ASSIGN_OR_RETURN(executor, CreateExecutor(model, 0, *memories.front(), setup.options));
    return {};
  };
  TANDEM_RETURN_IF_ERROR(AgreeThatAllIsWell(processes, create()));
  return ObeyRank0(processes, executor.get());
}

std::vector<ShardParts> OtherShardParts(const LoadedModel& model,
                                        const std::vector<std::unique_ptr<KvMemory>>& memories,
                                        const WorkerGroup& workers) {
  std::vector<ShardParts> others;
  for (size_t rank = 1; rank < workers.local().size(); ++rank) {
    Executor& executor = *workers.local()[rank];
    const MeasurementParts parts = executor.measurement_parts();
    others.push_back({.device = model.backend.DeviceOf(static_cast<int>(rank)),
                      .ops = model.backend.OpsOf(static_cast<int>(rank)),
                      .decoder = model.shards[rank].get(),
                      .memory = memories[rank].get(),
                      .cpu_attention = executor.cpu_attention(),
                      .compute = parts.compute,
                      .rows = parts.rows,
                      .plan = parts.plan,
                      .logits = parts.logits});
  }
  return others;
}

}  // namespace tandem
