#include "engine/shard_setup.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/wire.h"
#include "simd/cpu_isa.h"

namespace tandem {
namespace {

// What each process settles for itself, and all alike.
struct Settled {
  DType dtype = DType::kF32;
  KvFormat gpu, cpu;
  bool operator==(const Settled&) const = default;
};

struct SetupOverWire {
  Settled settled;
  int64_t num_gpu_blocks = 0;
  int64_t num_cpu_blocks = 0;
  ExecutorOptions options;
};

Settled SettledBy(const LoadedModel& model) {
  return {.dtype = model.first_shard().dtype(), .gpu = model.kv_formats.gpu, .cpu = model.kv_formats.cpu};
}

}  // namespace

template <typename Archive>
void OverWire(Archive& archive, KvFormat& format) {
  auto& [k_type, v_type, scales, numbers] = format;
  archive(k_type, v_type, scales, numbers);
}

template <typename Archive>
void OverWire(Archive& archive, AttentionFetch& fetch) {
  auto& [level, half_piece_ahead, every_second_line] = fetch;
  archive(level, half_piece_ahead, every_second_line);
}

template <typename Archive>
void OverWire(Archive& archive, CpuAttentionOptions& options) {
  // Nodes and timelines are the process' own.
  auto& [num_threads, leave_cores, pin, nodes, num_cores_taken, spin_us, isa, fetch, most_readers, order,
         timeline, timeline_lane] = options;
  archive(num_threads, leave_cores, pin, num_cores_taken, spin_us, isa, fetch, most_readers, order);
}

template <typename Archive>
void OverWire(Archive& archive, ExecutorOptions& options) {
  auto& [max_rows, max_context, max_table_blocks, cpu_attention, max_cpu_rows, max_rider_rows,
         max_flight_rows, max_transit_tokens, stall_timeout, graph_batch_sizes, graph_rider_rows,
         logits_slice_rows, timeline, rider_collective] = options;
  int64_t stall_ms = stall_timeout.count();
  archive(max_rows, max_context, max_table_blocks, cpu_attention, max_cpu_rows, max_rider_rows,
          max_flight_rows, max_transit_tokens, stall_ms, graph_batch_sizes, graph_rider_rows,
          logits_slice_rows);
  stall_timeout = std::chrono::milliseconds(stall_ms);
}

namespace {

template <typename Archive>
void OverWire(Archive& archive, Settled& settled) {
  auto& [dtype, gpu, cpu] = settled;
  archive(dtype, gpu, cpu);
}

template <typename Archive>
void OverWire(Archive& archive, SetupOverWire& setup) {
  auto& [settled, num_gpu_blocks, num_cpu_blocks, options] = setup;
  archive(settled, num_gpu_blocks, num_cpu_blocks, options);
}

}  // namespace

Status AgreeThatAllIsWell(Processes* processes, Status own) {
  if (processes == nullptr) return own;
  if (processes->shard().rank > 0) {
    std::optional<Error> error;
    if (!own.ok()) error = own.error();
    WireWriter writer;
    writer(error);
    processes->Send(0, writer.Take());
    return own;
  }
  if (!own.ok()) return own;
  const int num_processes = processes->shard().size;
  for (int rank = 1; rank < num_processes; ++rank) {
    const std::optional<Message> message = processes->Receive(rank, std::nullopt);
    if (!message) return *processes->collectives()->failure();
    std::optional<Error> error;
    WireReader reader(*message);
    reader(error);
    if (error) return ErrorOf({.rank = rank, .size = num_processes}, *std::move(error));
  }
  return {};
}

Result<std::vector<int64_t>> OfAllProcesses(Processes* processes, int64_t own) {
  auto all = ValuesOfAll(processes, own);
  if (!all) return NotHeardOfOthers(processes);
  return *std::move(all);
}

Message SetupMessage(const LoadedModel& model, const KvMemory& memory, const ExecutorOptions& options) {
  SetupOverWire setup = {.settled = SettledBy(model),
                         .num_gpu_blocks = memory.layout(Tier::kGpu).num_blocks,
                         .num_cpu_blocks = memory.layout(Tier::kCpu).num_blocks,
                         .options = options};
  WireWriter writer;
  writer(setup);
  return writer.Take();
}

Result<ShardSetup> ReadSetup(const Message& message, const LoadedModel& model) {
  SetupOverWire setup;
  WireReader reader(message);
  reader(setup);
  if (setup.settled != SettledBy(model)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "it computes in {} and shard 0 in {}, or their tiers differ in type; --dtype and "
                     "--kv-cache-dtype settle it",
                     DTypeName(model.first_shard().dtype()), DTypeName(setup.settled.dtype));
  }
  const std::vector<CpuIsa> supported = SupportedCpuIsas();
  if (std::ranges::find(supported, setup.options.cpu_attention.isa) == supported.end()) {
    return MakeError(ErrorCode::kUnsupported,
                     "its processor has no {}, which shard 0 attends with; --cpu-attention-isa settles it",
                     CpuIsaShortName(setup.options.cpu_attention.isa));
  }
  KvCacheOptions cache;
  cache.num_layers = model.config.num_layers;
  const auto shape_of = [&](const KvFormat& format) {
    return KvShape{.format = format, .num_kv_heads = model.num_kv_heads(), .head_dim = model.config.head_dim};
  };
  cache.gpu = {.shape = shape_of(setup.settled.gpu), .num_blocks = setup.num_gpu_blocks};
  cache.cpu = {.shape = shape_of(setup.settled.cpu), .num_blocks = setup.num_cpu_blocks};
  return ShardSetup{.cache = cache, .options = std::move(setup.options)};
}

}  // namespace tandem
