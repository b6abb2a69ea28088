#include "bench/energy_meter.h"

#include <chrono>
#include <ctime>

namespace tandem {
namespace {

// A counter of 65 kJ, as memory has them, lasts for a quarter of an hour at 70 W.
constexpr std::chrono::seconds kReadInterval{20};

double ProcessCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

std::string_view HostEnergySourceName(HostEnergySource source) {
  switch (source) {
    case HostEnergySource::kNone:
      return "";
    case HostEnergySource::kRapl:
      return "rapl";
    case HostEnergySource::kWattsPerCore:
      return "watts-per-core";
  }
  return "";
}

EnergyMeter::EnergyMeter(const EnergyOptions& options)
    : rapl_(options.rapl_folder),
      watts_per_core_(options.watts_per_core),
      host_source_(rapl_.readable()      ? HostEnergySource::kRapl
                   : watts_per_core_ > 0 ? HostEnergySource::kWattsPerCore
                                         : HostEnergySource::kNone),
      first_cpu_s_(ProcessCpuSeconds()) {
  if (!options.gpu_pci_bus_id.empty()) nvml_.emplace(options.gpu_pci_bus_id, options.nvml_library);
  if (host_source_ != HostEnergySource::kRapl) return;
  reader_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!stop_changed_.wait_for(lock, kReadInterval, [this] { return stop_; })) rapl_.ReadJoules();
  });
}

EnergyMeter::~EnergyMeter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  if (reader_.joinable()) reader_.join();
}

EnergyReading EnergyMeter::Read() {
  const std::lock_guard lock(mutex_);
  EnergyReading reading;
  if (nvml_) reading.gpu_j = nvml_->ReadJoules();
  switch (host_source_) {
    case HostEnergySource::kNone:
      break;
    case HostEnergySource::kRapl:
      reading.host_j = rapl_.ReadJoules();
      break;
    case HostEnergySource::kWattsPerCore:
      reading.host_j = watts_per_core_ * (ProcessCpuSeconds() - first_cpu_s_);
      break;
  }
  return reading;
}

}  // namespace tandem
