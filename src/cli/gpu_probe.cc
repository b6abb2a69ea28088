#include "cli/gpu_probe.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

#include "base/topology.h"

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
using DeviceGetP2PAttribute = int (*)(int* value, int attribute, int from, int to);
constexpr int kAccessSupported = 2;
constexpr int kNativeAtomicsSupported = 3;
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

// PCIe passes no atomic operations on between GPUs, NVLink does.
GpuLinkKind LinkBetween(void* library, int from, int to) {
  const auto get = Find<DeviceGetP2PAttribute>(library, "cuDeviceGetP2PAttribute");
  const auto both_ways = [&](int attribute) {
    int there = 0;
    int back = 0;
    return get != nullptr && get(&there, attribute, from, to) == 0 && get(&back, attribute, to, from) == 0 &&
           there != 0 && back != 0;
  };
  if (!both_ways(kAccessSupported)) return GpuLinkKind::kNone;
  return both_ways(kNativeAtomicsSupported) ? GpuLinkKind::kNvlink : GpuLinkKind::kPcie;
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
    info.numa_node = NumaNodeOfPciDevice(info.pci_bus_id);
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

GpuProbe ProbeGpus(const char* driver) {
  GpuProbe probe;
  const std::unique_ptr<void, CloseLibrary> library(dlopen(driver, RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    probe.reason = fmt::format("no NVIDIA driver: {} cannot be loaded", driver);
    return probe;
  }
  const auto init = Find<Init>(library.get(), "cuInit");
  const auto get_count = Find<DeviceGetCount>(library.get(), "cuDeviceGetCount");
  const auto get_device = Find<DeviceGet>(library.get(), "cuDeviceGet");
  if (init == nullptr || get_count == nullptr || get_device == nullptr) {
    probe.reason = fmt::format("{} lacks the functions of the driver API", driver);
    return probe;
  }
  int count = 0;
  if (const int error = init(0); error != 0) {
    probe.reason = fmt::format("the NVIDIA driver does not start (cuInit: error {})", error);
  } else if (get_count(&count) != 0 || count == 0) {
    probe.reason = "the NVIDIA driver sees no GPU";
  }
  std::vector<int> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    if (get_device(&device, ordinal) != 0) continue;
    probe.gpus.push_back(Describe(library.get(), device));
    for (int other = 0; other < static_cast<int>(devices.size()); ++other) {
      const GpuLinkKind kind = LinkBetween(library.get(), devices[static_cast<size_t>(other)], device);
      probe.links.push_back({.from = other, .to = static_cast<int>(devices.size()), .kind = kind});
    }
    devices.push_back(device);
  }
  return probe;
}

}  // namespace tandem
