// What the hardware counts of energy: the CPU's packages (RAPL, through powercap) and a GPU (NVML).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

// The packages of the host's CPUs, and their memory where it is counted apart. Source: Linux's
// Documentation/power/powercap. Not thread-safe.
class RaplCounters {
 public:
  // folder: where powercap's zones are; most systems let only root read them.
  explicit RaplCounters(const std::string& folder = "/sys/class/powercap");

  // Whether there is a package, and all that was found can be read.
  bool readable() const { return readable_; }
  // Joules since the construction. Counters wrap, some after minutes at full power: who wants a sum over a
  // long time must ask more often than that. Nothing once a zone cannot be read.
  std::optional<double> ReadJoules();

 private:
  struct Zone {
    std::string path;       // of energy_uj
    uint64_t range_uj = 0;  // the counter goes from 0 to this, and then begins again
    uint64_t last_uj = 0;
  };
  void AddZone(const std::string& folder);

  std::vector<Zone> zones_;
  bool readable_ = false;
  double joules_ = 0;
};

// One GPU of compute capability 7.0 and later. Loads NVML at run time. Not thread-safe.
class NvmlCounter {
 public:
  // pci_bus_id: as CUDA names the device, 0000:1b:00.0.
  explicit NvmlCounter(const std::string& pci_bus_id, const std::string& library = "libnvidia-ml.so.1");
  ~NvmlCounter();
  NvmlCounter(const NvmlCounter&) = delete;
  NvmlCounter& operator=(const NvmlCounter&) = delete;

  bool readable() const { return first_mj_.has_value(); }
  // Joules since the construction, of the whole card. Nothing where NVML, the card or the counter is missing.
  std::optional<double> ReadJoules() const;

 private:
  std::optional<uint64_t> ReadMillijoules() const;

  struct Library;
  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
  std::optional<uint64_t> first_mj_;
};

}  // namespace tandem
