#include "engine/backend.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/cpu_features.h"
#include "base/param_error.h"
#include "base/topology.h"
#include "collective/lone_shard.h"
#include "collective/processes.h"
#include "collective/shared_memory.h"
#include "device/host/host_device.h"
#include "engine/shards.h"
#include "engine/sum_times.h"
#include "ops/host/host_ops.h"
#ifdef TANDEM_CUDA
#include "collective/cuda/cuda_group.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/cuda_ops.h"
#endif

namespace tandem {
namespace {

// What is measured without some parts is not for others to find.
std::string FolderWithout(const EngineOptions& options) {
  std::string folder = CacheFolder(options);
  if (folder.empty() || options.without.empty()) return folder;
  return fmt::format("{}/without-{}", folder, fmt::join(options.without, "-"));
}

// Of a stream: each shard has one of its own. 0: one for each core.
int HostComputeThreads(const EngineOptions& options) {
  const auto num_shards = static_cast<int>(options.tensor_parallel_size);
  if (num_shards == 1) return options.cpu_threads;
  const int rank = options.processes == nullptr ? 0 : options.processes->shard().rank;
  return ThreadsOf(PlaceOnHost(options), {.rank = rank, .size = num_shards}, options.cpu_threads,
                   MachineTopology().num_physical_cores, {})
      .num_threads;
}

Backend CreateHostBackend(const EngineOptions& options) {
  Backend backend;
  backend.device = CreateHostDevice({.num_compute_threads = HostComputeThreads(options)});
  std::unique_ptr<HostOps> ops = CreateHostOps({});
  backend.host_ops = ops.get();
  backend.ops = std::move(ops);
  backend.dtypes = {DType::kF32, DType::kBF16};
  if (HostCpuFeatures().multiplies_bf16()) std::reverse(backend.dtypes.begin(), backend.dtypes.end());
  // A larger chunk would make decodes wait longer than it saves.
  backend.default_max_num_batched_tokens = 512;
  backend.max_rider_rows = 64;
  return backend;
}

#ifdef TANDEM_CUDA
// Close together where a padded row costs most, in steps of a tile of the products above.
std::vector<int64_t> GraphBatchSizes(int64_t max_num_seqs) {
  constexpr int64_t kLargest = 512;
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min(max_num_seqs, kLargest);) {
    sizes.push_back(size);
    size += size < 4 ? 1 : size < 16 ? 4 : size < 64 ? 8 : size < 256 ? 16 : 32;
  }
  if (max_num_seqs <= kLargest && sizes.back() < max_num_seqs) sizes.push_back(max_num_seqs);
  return sizes;
}

// Parts for EngineOptions::without. Without graphs there are none with riders either.
constexpr std::array<std::string_view, 9> kParts = {"fa3",          "fused-gate-up", "streamed-products",
                                                    "fp8-products", "hot-products",  "rider-graphs",
                                                    "graphs",       "nccl",          "one-shot"};

bool Has(const EngineOptions& options, std::string_view part) {
  return std::ranges::find(options.without, part) == options.without.end();
}

// By rank.
Result<std::vector<std::unique_ptr<Device>>> CreateDevices(const EngineOptions& options) {
  const CudaDeviceOptions device_options = {.memory_limit_bytes = options.gpu_memory_limit_bytes,
                                            .memory_utilization = options.gpu_memory_utilization,
                                            .sm_limit = options.gpu_sm_limit};
  const auto num_shards = static_cast<int>(options.tensor_parallel_size);
  std::vector<std::unique_ptr<Device>> devices(1);
  if (options.processes != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(devices.front(),
                            CreateCudaShard(device_options, {.index = options.processes->on_host().rank,
                                                             .num_slices = options.gpu_sm_slices}));
    return devices;
  }
  if (options.gpu_sm_slices > 0) return CreateCudaSlices(device_options, num_shards);
  if (num_shards > 1 && options.lone_shard.empty()) return CreateCudaDevices(device_options, num_shards);
  TANDEM_ASSIGN_OR_RETURN(devices.front(), CreateCudaDevice(device_options));
  return devices;
}

Result<Backend> CreateCudaBackend(const EngineOptions& options) {
  for (const std::string& part : options.without) {
    if (std::ranges::find(kParts, part) != kParts.end()) continue;
    return MakeParamError(ErrorCode::kInvalidArgument, "without", "'{}' is none of {}", part,
                          fmt::join(kParts, ", "));
  }
  const auto has = [&](std::string_view part) { return Has(options, part); };
  Backend backend;
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> devices, CreateDevices(options));
  const bool same_products = has("hot-products") && has("fused-gate-up") && has("streamed-products");
  const CudaOpsOptions ops_options = {
      .tuning_folder = same_products ? CacheFolder(options) : FolderWithout(options),
      .keep_quantized = options.quantization != Quantization::kNone,
      .hot_choice = has("hot-products"),
      .fused_gate_up = has("fused-gate-up"),
      .streamed_products = has("streamed-products"),
      .fp8_products = has("fp8-products"),
      .flash_attention3 = has("fa3")};
  for (std::unique_ptr<Device>& device : devices) {
    UseCudaGpu(*device);
    std::unique_ptr<Ops> ops = CreateCudaOps(device.get(), ops_options);
    if (!backend.device) {
      backend.device = std::move(device);
      backend.ops = std::move(ops);
    } else {
      backend.others.push_back({.device = std::move(device), .ops = std::move(ops)});
    }
  }
  if (options.processes != nullptr) backend.num_elsewhere = options.tensor_parallel_size - 1;
  backend.shares_memory = options.gpu_sm_slices > 0;
  backend.dtypes = {DType::kBF16, DType::kF16, DType::kF32};
  constexpr int kFirstWithBF16 = 80;
  if (CudaTargetOf(*backend.device).compute_capability < kFirstWithBF16)
    backend.dtypes = {DType::kF16, DType::kF32};
  backend.default_max_num_batched_tokens = CudaDefaults().max_num_batched_tokens;
  if (has("graphs")) backend.graph_batch_sizes = GraphBatchSizes(options.max_num_seqs);
  backend.max_rider_rows = CudaDefaults().max_rider_rows;
  if (has("rider-graphs")) backend.graph_rider_rows = {16, 48};
  backend.workspace_bytes = static_cast<size_t>(CudaDefaults().workspace_bytes);
  backend.leave_cores = true;
  backend.measures_costs = true;
  backend.cpu_attention_spin_us = 20'000;
  return backend;
}
#endif

Result<Backend> CreateNamedBackend(const EngineOptions& options) {
  if (options.device == "host") {
    if (options.without.empty()) return CreateHostBackend(options);
    return MakeParamError(ErrorCode::kInvalidArgument, "without",
                          "the host backend has nothing to leave out");
  }
  if (options.device != "cuda") {
    return MakeParamError(ErrorCode::kInvalidArgument, "device", "'{}' is neither host nor cuda",
                          options.device);
  }
#ifdef TANDEM_CUDA
  return CreateCudaBackend(options);
#else
  return MakeParamError(
      ErrorCode::kUnsupported, "device",
      "this build has no cuda backend (preset cuda-release has one); --device host runs the "
      "same engine on the CPU");
#endif
}

}  // namespace

std::string CacheFolder(const EngineOptions& options) {
  if (!options.cache_folder.empty()) return options.cache_folder;
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder != '\0')
    return std::string(folder) + "/tandem";
  const char* home = std::getenv("HOME");
  return home == nullptr ? std::string() : std::string(home) + "/.cache/tandem";
}

std::string Backend::Description() const {
  if (num_devices() == 1) return device->Description();
  std::string all = fmt::format("{} x {}", num_devices(), device->Description());
  return num_assumed == 0 ? all : fmt::format("one shard of {}, the others taken to be equal", all);
}

FreeMemory Backend::free_memory() const {
  FreeMemory memory(*device);
  if (num_devices() == 1 || shares_memory) return memory;
  for (const ShardBackend& other : others)
    memory.device_bytes = std::min(memory.device_bytes, FreeMemory(*other.device).device_bytes);
  if (free_elsewhere_bytes) memory.device_bytes = std::min(memory.device_bytes, *free_elsewhere_bytes);
  memory.device_bytes *= num_devices();
  memory.pinned_bytes *= 1 + num_assumed;
  return memory;
}

Result<std::unique_ptr<CollectiveGroup>> CreateCollectives(const Backend& backend,
                                                           const EngineOptions& options) {
  if (!options.lone_shard.empty()) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<SumTime> times,
                            ReadSumTimes(options.lone_shard, options.tensor_parallel_size));
    return CreateLoneShard(
        backend.device.get(),
        {.num_shards = static_cast<int>(options.tensor_parallel_size), .times = std::move(times)});
  }
#ifdef TANDEM_CUDA
  if (backend.num_devices() > 1) {
    CudaGroupOptions group_options = {.use_nccl = Has(options, "nccl"),
                                      .may_share_gpu = backend.shares_memory};
    if (!Has(options, "one-shot")) group_options.nccl_from_bytes = 0;
    if (options.processes != nullptr)
      return CreateCudaGroup(backend.device.get(), options.processes, group_options);
    std::vector<Device*> devices(static_cast<size_t>(backend.num_devices()));
    for (size_t rank = 0; rank < devices.size(); ++rank)
      devices[rank] = backend.DeviceOf(static_cast<int>(rank));
    return CreateCudaGroup(devices, group_options);
  }
#endif
  TANDEM_CHECK(backend.num_devices() == 1, "{} devices that have no exchange", backend.num_devices());
  if (options.processes != nullptr) return std::unique_ptr<CollectiveGroup>();
  return CreateSharedMemoryGroup({.num_shards = static_cast<int>(options.tensor_parallel_size)});
}

Result<Backend> CreateBackend(const EngineOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(Backend backend, CreateNamedBackend(options));
  backend.cache_folder = FolderWithout(options);
  if (!options.lone_shard.empty()) {
    backend.num_assumed = options.tensor_parallel_size - 1;
    // Its costs are with times of others: measured anew each time.
    backend.cache_folder.clear();
  }
  return backend;
}

}  // namespace tandem
