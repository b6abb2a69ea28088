#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/param_error.h"
#include "base/topology.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_gpu.h"
#include "device/cuda/cuda_sync.h"
#include "device/cuda/driver_api.h"
#include "device/cuda/fifo_cuda_stream.h"
#include "device/cuda/stamp.h"
#include "device/host/host_device.h"
#include "device/touch_pages.h"

namespace tandem {
namespace {

constexpr size_t kBytesPerMiB = size_t{1} << 20;
// From here on pinned memory is ordinary memory in huge pages that is registered with the driver: it is
// placed and accounted for like the host backend's.
constexpr size_t kRegisterBytes = size_t{2} << 20;

Error Unavailable(cudaError_t error) {
  int driver_version = 0;
  cudaDriverGetVersion(&driver_version);
  if (driver_version == 0) {
    return MakeParamError(ErrorCode::kUnavailable, "device",
                          "there is no NVIDIA driver on this machine; --device host needs none");
  }
  if (error == cudaErrorInsufficientDriver) {
    return MakeParamError(ErrorCode::kUnavailable, "device",
                          "the NVIDIA driver is too old: it supports CUDA {}.{}, this build needs {}.{}",
                          driver_version / 1000, driver_version % 1000 / 10, CUDART_VERSION / 1000,
                          CUDART_VERSION % 1000 / 10);
  }
  if (error == cudaErrorNoDevice) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return MakeParamError(ErrorCode::kUnavailable, "device", "there is no NVIDIA GPU{}",
                          visible == nullptr ? "" : fmt::format(" among CUDA_VISIBLE_DEVICES={}", visible));
  }
  return MakeParamError(ErrorCode::kUnavailable, "device", "the GPU cannot be used: {}",
                        CudaErrorText(error));
}

// GPUs that can be used, one at least.
Result<int> CountGpus() {
  // A stream that waits for a flag must not hold up another one that shares its hardware queue; by default
  // there are 8 queues. Read when the context is created.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int num_gpus = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&num_gpus); error != cudaSuccess)
    return Unavailable(error);
  if (num_gpus == 0) return Unavailable(cudaErrorNoDevice);
  return num_gpus;
}

// Before the runtime begins: a kernel that is loaded at its first launch may wait for all that runs, shards'
// kernels that wait for that very launch among it.
void LoadKernelsAtOnce() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

// Which part of the machine a device is.
struct Place {
  int gpu = 0;
  int num_slices = 1;  // that the GPU is cut into
  int slice = 0;
  // Cut by the first device that is opened. Null where there is one slice or none.
  std::shared_ptr<std::vector<CUdevResource>> slices;
  bool is_one_of_many = false;  // GPUs that this process uses
};

class CudaDevice : public Device {
 public:
  CudaDevice() = default;
  ~CudaDevice() override {
    if (green_context_ != nullptr) api_.green_context_destroy(green_context_);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  Status Open(const CudaDeviceOptions& options, const Place& place = {}) {
    place_ = place;
    if (const auto num_gpus = CountGpus(); !num_gpus.ok()) return num_gpus.error();
    if (const cudaError_t error = cudaGetDeviceProperties(&properties_, place_.gpu); error != cudaSuccess) {
      return Unavailable(error);
    }
    // Of a device alone too: another one may have been used before it.
    UseGpu(place_.gpu);
    // Creates the context.
    if (const cudaError_t error = cudaFree(nullptr); error != cudaSuccess) return Unavailable(error);
    int architecture = 0;
    if (const cudaError_t error = FindDeviceCode(&architecture); error != cudaSuccess) {
      cudaGetLastError();
      if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction) {
        return Unavailable(error);
      }
      constexpr int kTuring = 75;
      const bool is_too_old = properties_.major * 10 + properties_.minor < kTuring;
      return MakeParamError(ErrorCode::kUnsupported, "device",
                            "{} has compute capability {}.{}, this build has code for {}; {}",
                            properties_.name, properties_.major, properties_.minor, TANDEM_CUDA_ARCHITECTURES,
                            is_too_old ? "there is none for GPUs before 7.5"
                                       : "build here with -DTANDEM_CUDA_ARCHITECTURES=native");
    }
    TANDEM_ASSIGN_OR_RETURN(api_, LoadDriverApi());
    target_.compute_capability = properties_.major * 10 + properties_.minor;
    target_.num_sms = properties_.multiProcessorCount;
    target_.max_shared_bytes_per_block = static_cast<int>(properties_.sharedMemPerBlockOptin);
    target_.l2_bytes = properties_.l2CacheSize;
    target_ = LimitToArchitecture(target_, architecture);
    TANDEM_RETURN_IF_ERROR(SetMemoryBudget(options));
    if (place_.num_slices > 1) {
      TANDEM_RETURN_IF_ERROR(CutIntoSlices(options.sm_limit));
    } else if (options.sm_limit > 0) {
      TANDEM_RETURN_IF_ERROR(CutSlice(options.sm_limit));
    }
    // The runtime's, for host memory.
    host_ = CreateHostDevice({.num_compute_threads = 1});
    return {};
  }

  std::string_view backend() const override { return "cuda"; }

  std::string Description() const override {
    const std::string slice =
        green_context_ == nullptr
            ? fmt::format("{} SMs", target_.num_sms)
            : fmt::format("a slice of {} of {} SMs", target_.num_sms, properties_.multiProcessorCount);
    return fmt::format("{}, {}, {} MiB", properties_.name, slice, budget_bytes_ / kBytesPerMiB);
  }

  int numa_node() const override {
    std::array<char, 32> bus_id{};
    TANDEM_CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), place_.gpu));
    return NumaNodeOfPciDevice(bus_id.data());
  }

  std::string Key() const {
    std::string name = properties_.name;
    std::replace(name.begin(), name.end(), ' ', '-');
    return fmt::format("{}-sm{}-{}", name, target_.compute_capability, target_.num_sms);
  }

  int gpu() const { return place_.gpu; }
  std::string uuid() const { return {properties_.uuid.bytes, sizeof(properties_.uuid.bytes)}; }
  // Of one device alone all threads have its GPU to begin with.
  void Use() const {
    if (place_.is_one_of_many) UseGpu(place_.gpu);
  }

  using Device::Allocate;
  Result<Buffer> Allocate(size_t size_bytes, MemoryKind kind, std::string_view what,
                          const AllocateOptions& options) override {
    TANDEM_CHECK(options.num_parts >= 1 && size_bytes % static_cast<size_t>(options.num_parts) == 0,
                 "{}: {} bytes in {} parts", what, size_bytes, options.num_parts);
    if (size_bytes == 0) return Buffer();
    Use();
    return kind == MemoryKind::kDevice ? AllocateDevice(size_bytes, what, options)
                                       : AllocatePinned(size_bytes, what, options);
  }

  std::unique_ptr<Stream> CreateStream(StreamKind kind, std::string_view name) override {
    Use();
    cudaStream_t stream = nullptr;
    // Copy engines are not SMs, but the few kernels of a copy stream belong into the slice as well.
    if (green_context_ != nullptr) {
      TANDEM_CUDA_CHECK(api_.green_context_stream_create(&stream, green_context_, CU_STREAM_NON_BLOCKING, 0),
                        "stream {}", name);
    } else {
      int least = 0;
      int greatest = 0;
      TANDEM_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
      TANDEM_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                     kind == StreamKind::kCompute ? greatest : least),
                        "stream {}", name);
    }
    return std::make_unique<FifoCudaStream>(stream, api_, target_,
                                            place_.is_one_of_many ? place_.gpu : kAnyGpu, name);
  }

  std::unique_ptr<Event> CreateEvent() override {
    Use();
    return std::make_unique<CudaEvent>();
  }
  std::unique_ptr<Flag> CreateFlag() override { return std::make_unique<CudaFlag>(flag_words_); }

  size_t FreeBytes(MemoryKind kind) const override {
    if (kind == MemoryKind::kPinned) return host_->FreeBytes(kind);
    Use();
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    TANDEM_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    const size_t used_bytes = total_bytes - free_bytes;
    return used_bytes < budget_bytes_ ? std::min(budget_bytes_ - used_bytes, free_bytes) : 0;
  }
  bool KindsShareMemory() const override { return false; }

  int64_t ClockOffsetNs() override {
    const std::unique_ptr<Stream> stream = CreateStream(StreamKind::kCompute, "clock");
    auto stamp = Allocate(sizeof(uint64_t), MemoryKind::kPinned, "clock");
    TANDEM_CHECK(stamp.ok(), "{}", stamp.error().message);
    const auto now_ns = [] {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::steady_clock::now().time_since_epoch())
          .count();
    };
    constexpr int kTries = 20;
    int64_t best_span = 0;
    int64_t offset = 0;
    for (int i = 0; i < kTries; ++i) {
      const int64_t begin = now_ns();
      stream->Stamp(stamp->as<uint64_t>());
      stream->Synchronize();
      const int64_t end = now_ns();
      if (i > 0 && end - begin >= best_span) continue;
      best_span = end - begin;
      offset = begin + best_span / 2 - static_cast<int64_t>(*stamp->as<volatile uint64_t>());
    }
    return offset;
  }

  const CudaTarget& target() const { return target_; }

 private:
  Status SetMemoryBudget(const CudaDeviceOptions& options) {
    const size_t total_bytes = properties_.totalGlobalMem;
    if (!(options.memory_utilization > 0.0) || options.memory_utilization > 1.0) {
      return MakeParamError(ErrorCode::kInvalidArgument, "gpu-memory-utilization",
                            "gpu-memory-utilization {} is not above 0 and at most 1",
                            options.memory_utilization);
    }
    budget_bytes_ = static_cast<size_t>(static_cast<double>(total_bytes) * options.memory_utilization);
    if (options.memory_limit_bytes > 0) {
      if (static_cast<size_t>(options.memory_limit_bytes) > total_bytes) {
        return MakeParamError(ErrorCode::kInvalidArgument, "gpu-memory-limit",
                              "gpu-memory-limit {} MiB is more than the {} MiB of {}",
                              static_cast<size_t>(options.memory_limit_bytes) / kBytesPerMiB,
                              total_bytes / kBytesPerMiB, properties_.name);
      }
      budget_bytes_ = std::min(budget_bytes_, static_cast<size_t>(options.memory_limit_bytes));
    }
    return {};
  }

  Status CutIntoSlices(int sm_limit) {
    // What every GPU with green contexts can cut in multiples of.
    constexpr int kStep = 8;
    const auto num_slices = static_cast<unsigned>(place_.num_slices);
    std::vector<CUdevResource>& slices = *place_.slices;
    bool cut = !slices.empty();
    if (!cut) slices.resize(num_slices);
    CUdevResource all = {};
    CUresult result = api_.device_get_resource(place_.gpu, &all, CU_DEV_RESOURCE_TYPE_SM);
    int sms = target_.num_sms / place_.num_slices / kStep * kStep;
    if (sm_limit > 0) sms = std::min(sms, std::max(kStep, sm_limit));
    // Where clusters of SMs are of different sizes not every division comes out.
    for (; result == CUDA_SUCCESS && !cut && sms >= kStep; sms -= kStep) {
      CUdevResource rest = {};
      unsigned num_groups = num_slices;
      cut = api_.split_sms(slices.data(), &num_groups, &all, &rest, 0, static_cast<unsigned>(sms)) ==
                CUDA_SUCCESS &&
            num_groups == num_slices;
    }
    CUdevResource* slice = &slices[static_cast<size_t>(place_.slice)];
    CUdevResourceDesc description = nullptr;
    if (cut) result = api_.generate_resource_desc(&description, slice, 1);
    if (cut && result == CUDA_SUCCESS) {
      result =
          api_.green_context_create(&green_context_, description, place_.gpu, CU_GREEN_CTX_DEFAULT_STREAM);
    }
    if (!cut || result != CUDA_SUCCESS) {
      return MakeParamError(ErrorCode::kInvalidArgument, "gpu-sm-slices",
                            "the {} SMs of {} cannot be cut into {} slices ({})", target_.num_sms,
                            properties_.name, num_slices, CudaErrorText(result));
    }
    target_.num_sms = static_cast<int>(slice->sm.smCount);
    return {};
  }

  Status CutSlice(int sm_limit) {
    if (sm_limit > target_.num_sms) {
      return MakeParamError(ErrorCode::kInvalidArgument, "gpu-sm-limit",
                            "gpu-sm-limit {} is more than the {} SMs of {}", sm_limit, target_.num_sms,
                            properties_.name);
    }
    CUdevResource all = {};
    CUdevResource slice = {};
    CUdevResource rest = {};
    unsigned num_groups = 1;
    CUdevResourceDesc description = nullptr;
    CUresult result = api_.device_get_resource(0, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (result == CUDA_SUCCESS) {
      result = api_.split_sms(&slice, &num_groups, &all, &rest, 0, static_cast<unsigned>(sm_limit));
    }
    if (result == CUDA_SUCCESS && num_groups == 1)
      result = api_.generate_resource_desc(&description, &slice, 1);
    if (result == CUDA_SUCCESS && num_groups == 1) {
      result = api_.green_context_create(&green_context_, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    }
    if (result != CUDA_SUCCESS || num_groups != 1) {
      return MakeParamError(ErrorCode::kUnsupported, "gpu-sm-limit",
                            "{} cannot be cut into a slice of {} SMs ({})", properties_.name, sm_limit,
                            CudaErrorText(result));
    }
    target_.num_sms = static_cast<int>(slice.sm.smCount);
    return {};
  }

  Error NotEnough(size_t size_bytes, std::string_view what, size_t free_bytes,
                  const AllocateOptions& options) const {
    const std::string remedy = options.flag.empty() ? "" : fmt::format("; make --{} smaller", options.flag);
    return MakeParamError(
        ErrorCode::kResourceExhausted, options.flag,
        "not enough GPU memory for {}: {} MiB wanted, {} MiB left of the {} MiB that may be "
        "used of {}{}",
        what, (size_bytes + kBytesPerMiB - 1) / kBytesPerMiB, free_bytes / kBytesPerMiB,
        budget_bytes_ / kBytesPerMiB, properties_.name, remedy);
  }

  Result<Buffer> AllocateDevice(size_t size_bytes, std::string_view what, const AllocateOptions& options) {
    // Asking the driver each time would be slow for the many small buffers of a model.
    const bool large = size_bytes >= kBytesPerMiB;
    if (large) {
      const size_t free_bytes = FreeBytes(MemoryKind::kDevice);
      if (size_bytes > free_bytes) return NotEnough(size_bytes, what, free_bytes, options);
    }
    void* data = nullptr;
    if (const cudaError_t error = cudaMalloc(&data, size_bytes); error != cudaSuccess) {
      cudaGetLastError();
      TANDEM_CHECK(error == cudaErrorMemoryAllocation, "{}: {}", what, CudaErrorText(error));
      return NotEnough(size_bytes, what, FreeBytes(MemoryKind::kDevice), options);
    }
    TANDEM_CUDA_CHECK(cudaMemset(data, 0, size_bytes), "{}: {} bytes", what, size_bytes);
    // Other streams do not wait for the one that cleared it.
    TANDEM_CUDA_CHECK(cudaStreamSynchronize(nullptr), "{}: {} bytes", what, size_bytes);
    return Buffer(data, size_bytes, [](void* address) { cudaFree(address); });
  }

  Result<Buffer> AllocatePinned(size_t size_bytes, std::string_view what, const AllocateOptions& options) {
    if (size_bytes < kRegisterBytes && options.num_parts == 1 && options.nodes.empty()) {
      void* data = nullptr;
      if (cudaHostAlloc(&data, size_bytes, cudaHostAllocPortable | cudaHostAllocMapped) != cudaSuccess) {
        cudaGetLastError();
        return MakeParamError(ErrorCode::kResourceExhausted, options.flag,
                              "the driver cannot pin {} bytes of host memory for {}", size_bytes, what);
      }
      std::fill_n(static_cast<std::byte*>(data), size_bytes, std::byte{0});
      return Buffer(data, size_bytes, [](void* address) { cudaFreeHost(address); });
    }
    TANDEM_ASSIGN_OR_RETURN(Buffer pages, host_->Allocate(size_bytes, MemoryKind::kPinned, what, options));
    // The driver would have them provided one after the other.
    TouchPages(pages.data(), size_bytes);
    if (cudaHostRegister(pages.data(), size_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) !=
        cudaSuccess) {
      cudaGetLastError();
      return MakeParamError(ErrorCode::kResourceExhausted, options.flag,
                            "the driver cannot pin {} MiB of host memory for {}", size_bytes / kBytesPerMiB,
                            what);
    }
    void* data = pages.data();
    auto shared_pages = std::make_shared<Buffer>(std::move(pages));
    return Buffer(data, size_bytes, [shared_pages](void* address) {
      cudaHostUnregister(address);
      *shared_pages = Buffer();
    });
  }

  Place place_;
  cudaDeviceProp properties_ = {};
  DriverApi api_;
  CudaTarget target_;
  size_t budget_bytes_ = 0;
  CUgreenCtx green_context_ = nullptr;
  std::shared_ptr<FlagWords> flag_words_ = std::make_shared<FlagWords>();
  std::unique_ptr<Device> host_;
};

const CudaDevice& AsCudaDevice(const Device& device) {
  const auto* cuda_device = dynamic_cast<const CudaDevice*>(&device);
  TANDEM_CHECK(cuda_device != nullptr, "a device of the {} backend is not one of cuda", device.backend());
  return *cuda_device;
}

}  // namespace

Result<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options) {
  auto device = std::make_unique<CudaDevice>();
  TANDEM_RETURN_IF_ERROR(device->Open(options));
  return std::unique_ptr<Device>(std::move(device));
}

Result<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(const CudaDeviceOptions& options,
                                                               int num_gpus) {
  LoadKernelsAtOnce();
  TANDEM_ASSIGN_OR_RETURN(const int num_there, CountGpus());
  if (num_there < num_gpus) {
    return MakeParamError(ErrorCode::kUnavailable, "tensor-parallel-size",
                          "tensor-parallel-size {} needs as many GPUs, and there {} {}", num_gpus,
                          num_there == 1 ? "is" : "are", num_there);
  }
  std::vector<std::unique_ptr<Device>> devices;
  for (int gpu = 0; gpu < num_gpus; ++gpu) {
    auto device = std::make_unique<CudaDevice>();
    TANDEM_RETURN_IF_ERROR(device->Open(options, {.gpu = gpu, .is_one_of_many = true}));
    devices.push_back(std::move(device));
  }
  UseCudaGpu(*devices.front());
  return devices;
}

Result<std::vector<std::unique_ptr<Device>>> CreateCudaSlices(const CudaDeviceOptions& options,
                                                              int num_slices) {
  LoadKernelsAtOnce();
  std::vector<std::unique_ptr<Device>> devices;
  const auto slices = std::make_shared<std::vector<CUdevResource>>();
  for (int slice = 0; slice < num_slices; ++slice) {
    auto device = std::make_unique<CudaDevice>();
    TANDEM_RETURN_IF_ERROR(
        device->Open(options, {.num_slices = num_slices, .slice = slice, .slices = slices}));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::unique_ptr<Device>> CreateCudaShard(const CudaDeviceOptions& options,
                                                const CudaShardPlace& place) {
  LoadKernelsAtOnce();
  TANDEM_ASSIGN_OR_RETURN(const int num_there, CountGpus());
  auto device = std::make_unique<CudaDevice>();
  if (place.num_slices > 0) {
    TANDEM_RETURN_IF_ERROR(device->Open(options, {.num_slices = place.num_slices,
                                                  .slice = place.index,
                                                  .slices = std::make_shared<std::vector<CUdevResource>>()}));
  } else {
    // Of several: threads begin with the first one.
    TANDEM_RETURN_IF_ERROR(
        device->Open(options, {.gpu = place.index % num_there, .is_one_of_many = num_there > 1}));
  }
  return std::unique_ptr<Device>(std::move(device));
}

int CudaGpuOf(const Device& device) {
  return AsCudaDevice(device).gpu();
}

std::string CudaGpuUuid(const Device& device) {
  return AsCudaDevice(device).uuid();
}

void UseCudaGpu(const Device& device) {
  AsCudaDevice(device).Use();
}

const CudaTarget& CudaTargetOf(const Device& device) {
  return AsCudaDevice(device).target();
}

std::string CudaDeviceKey(const Device& device) {
  return AsCudaDevice(device).Key();
}

}  // namespace tandem
