#include "cli/gpu_probe.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

namespace tandem {
namespace {

// The few functions of the driver API that are needed, under their exported names.
using Init = int (*)(unsigned flags);
using DeviceGetCount = int (*)(int* count);
using DeviceGet = int (*)(int* device, int ordinal);
using DeviceGetName = int (*)(char* name, int length, int device);
using DeviceTotalMem = int (*)(size_t* bytes, int device);
using DeviceGetPciBusId = int (*)(char* id, int length, int device);
using DeviceGetAttribute = int (*)(int* value, int attribute, int device);
constexpr int kAttributeNumSms = 16;
constexpr int kAttributeCapabilityMajor = 75;
constexpr int kAttributeCapabilityMinor = 76;

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

template <typename Function>
Function Find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

GpuInfo Describe(void* library, int device) {
  GpuInfo info;
  std::array<char, 256> name{};
  size_t memory_bytes = 0;
  const auto get_name = Find<DeviceGetName>(library, "cuDeviceGetName");
  const auto total_memory = Find<DeviceTotalMem>(library, "cuDeviceTotalMem_v2");
  const auto attribute = Find<DeviceGetAttribute>(library, "cuDeviceGetAttribute");
  if (get_name != nullptr && get_name(name.data(), static_cast<int>(name.size()) - 1, device) == 0) {
    info.name = name.data();
  }
  std::array<char, 32> bus_id{};
  const auto get_bus_id = Find<DeviceGetPciBusId>(library, "cuDeviceGetPCIBusId");
  if (get_bus_id != nullptr && get_bus_id(bus_id.data(), static_cast<int>(bus_id.size()) - 1, device) == 0) {
    info.pci_bus_id = bus_id.data();
  }
  if (total_memory != nullptr && total_memory(&memory_bytes, device) == 0) {
    info.memory_bytes = static_cast<int64_t>(memory_bytes);
  }
  if (attribute != nullptr) {
    attribute(&info.num_sms, kAttributeNumSms, device);
    attribute(&info.compute_capability_major, kAttributeCapabilityMajor, device);
    attribute(&info.compute_capability_minor, kAttributeCapabilityMinor, device);
  }
  return info;
}

}  // namespace

GpuProbe ProbeGpus() {
  GpuProbe probe;
  const std::unique_ptr<void, CloseLibrary> library(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    probe.reason = "no NVIDIA driver: libcuda.so.1 cannot be loaded";
    return probe;
  }
  const auto init = Find<Init>(library.get(), "cuInit");
  const auto get_count = Find<DeviceGetCount>(library.get(), "cuDeviceGetCount");
  const auto get_device = Find<DeviceGet>(library.get(), "cuDeviceGet");
  if (init == nullptr || get_count == nullptr || get_device == nullptr) {
    probe.reason = "libcuda.so.1 lacks the functions of the driver API";
    return probe;
  }
  int count = 0;
  if (const int error = init(0); error != 0) {
    probe.reason = fmt::format("the NVIDIA driver does not start (cuInit: error {})", error);
  } else if (get_count(&count) != 0 || count == 0) {
    probe.reason = "the NVIDIA driver sees no GPU";
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    if (get_device(&device, ordinal) == 0) probe.gpus.push_back(Describe(library.get(), device));
  }
  return probe;
}

}  // namespace tandem
