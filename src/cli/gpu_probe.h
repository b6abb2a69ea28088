// Which NVIDIA GPUs the driver offers, found without linking against it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct GpuInfo {
  std::string name;
  std::string pci_bus_id;  // 0000:1b:00.0, as NVML takes it; empty: the driver does not say
  int64_t memory_bytes = 0;
  int compute_capability_major = 0;
  int compute_capability_minor = 0;
  int num_sms = 0;
  int numa_node = -1;  // whose memory is nearest; -1: not known
};

// How a GPU reaches another one's memory.
enum class GpuLinkKind { kNvlink, kPcie, kNone };

struct GpuLink {
  int from = 0;  // ordinals, from < to
  int to = 0;
  GpuLinkKind kind = GpuLinkKind::kNone;
};

struct GpuProbe {
  std::vector<GpuInfo> gpus;
  std::vector<GpuLink> links;  // of all pairs
  std::string reason;          // why there is none; empty if there is one
};

// driver: the library that is asked.
GpuProbe ProbeGpus(const char* driver = "libcuda.so.1");

}  // namespace tandem
