#include "bench/energy_counters.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace tandem {
namespace {

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

std::string ReadWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "intel-rapl:0" is a package, "intel-rapl:0:1" a part of it (AMD's processors have these names too). Others
// ("intel-rapl-mmio:0") count the same package a second time.
int DepthOfZone(const std::string& name) {
  constexpr std::string_view kPrefix = "intel-rapl:";
  if (!name.starts_with(kPrefix)) return 0;
  return static_cast<int>(std::count(name.begin(), name.end(), ':'));
}

}  // namespace

RaplCounters::RaplCounters(const std::string& folder) {
  std::vector<std::string> packages;
  std::vector<std::string> memories;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    const int depth = DepthOfZone(entry.path().filename().string());
    const std::string name = depth > 0 ? ReadWord(path + "/name") : "";
    if (depth == 1 && name.starts_with("package-")) packages.push_back(path);
    if (depth == 2 && name == "dram") memories.push_back(path);
  }
  for (const std::string& path : packages) AddZone(path);
  readable_ = !packages.empty() && zones_.size() == packages.size();
  for (const std::string& path : memories) AddZone(path);
  readable_ = readable_ && zones_.size() == packages.size() + memories.size();
}

void RaplCounters::AddZone(const std::string& folder) {
  const auto now_uj = ReadNumber(folder + "/energy_uj");
  const auto range_uj = ReadNumber(folder + "/max_energy_range_uj");
  if (now_uj && range_uj) zones_.push_back({folder + "/energy_uj", *range_uj, *now_uj});
}

std::optional<double> RaplCounters::ReadJoules() {
  constexpr double kMicrojoulesPerJoule = 1e6;
  if (!readable_) return std::nullopt;
  for (Zone& zone : zones_) {
    const auto now_uj = ReadNumber(zone.path);
    if (!now_uj) {
      readable_ = false;
      return std::nullopt;
    }
    const bool has_wrapped = *now_uj < zone.last_uj;
    const uint64_t used_uj = has_wrapped ? *now_uj + zone.range_uj - zone.last_uj : *now_uj - zone.last_uj;
    joules_ += static_cast<double>(used_uj) / kMicrojoulesPerJoule;
    zone.last_uj = *now_uj;
  }
  return joules_;
}

// The few functions of NVML that are needed, under their exported names. 0 is success.
struct NvmlCounter::Library {
  using Plain = int (*)();
  using GetHandle = int (*)(const char* pci_bus_id, void** device);
  using GetEnergy = int (*)(void* device, unsigned long long* millijoules);

  explicit Library(const std::string& name) : handle(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) return;
    init = Find<Plain>("nvmlInit_v2");
    shutdown = Find<Plain>("nvmlShutdown");
    get_handle = Find<GetHandle>("nvmlDeviceGetHandleByPciBusId_v2");
    get_energy = Find<GetEnergy>("nvmlDeviceGetTotalEnergyConsumption");
    if (init == nullptr || shutdown == nullptr || get_handle == nullptr || get_energy == nullptr) return;
    is_open = init() == 0;
  }
  ~Library() {
    if (is_open) shutdown();
    if (handle != nullptr) dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename Function>
  Function Find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(handle, name));
  }

  void* handle = nullptr;
  Plain init = nullptr;
  Plain shutdown = nullptr;
  GetHandle get_handle = nullptr;
  GetEnergy get_energy = nullptr;
  bool is_open = false;
};

NvmlCounter::NvmlCounter(const std::string& pci_bus_id, const std::string& library)
    : library_(std::make_unique<Library>(library)) {
  if (!library_->is_open || library_->get_handle(pci_bus_id.c_str(), &device_) != 0) return;
  first_mj_ = ReadMillijoules();
}

NvmlCounter::~NvmlCounter() = default;

std::optional<uint64_t> NvmlCounter::ReadMillijoules() const {
  unsigned long long millijoules = 0;
  if (library_->get_energy(device_, &millijoules) != 0) return std::nullopt;
  return millijoules;
}

std::optional<double> NvmlCounter::ReadJoules() const {
  constexpr double kMillijoulesPerJoule = 1e3;
  if (!first_mj_) return std::nullopt;
  const auto now_mj = ReadMillijoules();
  if (!now_mj || *now_mj < *first_mj_) return std::nullopt;
  return static_cast<double>(*now_mj - *first_mj_) / kMillijoulesPerJoule;
}

}  // namespace tandem
