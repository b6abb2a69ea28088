// A stand-in for NVML that tests load: one GPU, whose counter a variable of the environment holds.
#include <cstdlib>
#include <cstring>

extern "C" {

int nvmlInit_v2() {
  return 0;
}

int nvmlShutdown() {
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* pci_bus_id, void** device) {
  constexpr int kNotFound = 6;
  static int gpu = 0;
  if (std::strcmp(pci_bus_id, "0000:1b:00.0") != 0) return kNotFound;
  *device = &gpu;
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  constexpr int kNotSupported = 3;
  const char* counter = std::getenv("TANDEM_TEST_GPU_MILLIJOULES");
  if (device == nullptr || counter == nullptr) return kNotSupported;
  *millijoules = std::strtoull(counter, nullptr, 10);
  return 0;
}

}  // extern "C"
