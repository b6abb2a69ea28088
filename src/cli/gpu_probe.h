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
};

struct GpuProbe {
  std::vector<GpuInfo> gpus;
  std::string reason;  // why there is none; empty if there is one
};

GpuProbe ProbeGpus();

}  // namespace tandem
