// Joules that a benchmark's machine uses: the GPU by NVML, the host by RAPL or else by a stated number of
// watts a busy core.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "bench/energy_counters.h"

namespace tandem {

struct EnergyOptions {
  std::string gpu_pci_bus_id;  // of the GPU that the engine runs on; empty: none
  // Of a core that this process keeps busy, where RAPL cannot be read; 0: nothing is said of it.
  double watts_per_core = 0;
  std::string rapl_folder = "/sys/class/powercap";
  std::string nvml_library = "libnvidia-ml.so.1";
};

// Since the meter was made. Absent: nothing counts it.
struct EnergyReading {
  std::optional<double> gpu_j;   // of the whole card
  std::optional<double> host_j;  // by host_source of the meter
};

// Where an EnergyReading's host_j comes from.
enum class HostEnergySource {
  kNone,
  kRapl,          // packages and memory, whatever runs on them
  kWattsPerCore,  // CPU time of this process, busy waiting included, and nothing else of the host
};
std::string_view HostEnergySourceName(HostEnergySource source);  // "rapl", "watts-per-core"; kNone: ""

// Thread-safe. A thread of its own reads now and then, because the counters wrap.
class EnergyMeter {
 public:
  explicit EnergyMeter(const EnergyOptions& options);
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  HostEnergySource host_source() const { return host_source_; }
  double watts_per_core() const { return watts_per_core_; }
  EnergyReading Read();

 private:
  std::mutex mutex_;
  RaplCounters rapl_;                // guarded by mutex_
  std::optional<NvmlCounter> nvml_;  // guarded by mutex_
  const double watts_per_core_;
  const HostEnergySource host_source_;
  const double first_cpu_s_;  // of this process
  std::condition_variable stop_changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread reader_;
};

}  // namespace tandem
