// A driver of three GPUs, for machines that have fewer: 0 and 1 are linked by NVLink, 1 and 2 reach each
// other over PCIe, 0 reaches 2 and is not reached from there.

#include <cstddef>
#include <cstdio>

namespace {

constexpr int kFirstDevice = 40;  // devices are not their ordinals
constexpr int kNumGpus = 3;

}  // namespace

extern "C" {

int cuInit(unsigned /*flags*/) {
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = kNumGpus;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = kFirstDevice + ordinal;
  return 0;
}
int cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, static_cast<size_t>(length), "Card %d", device - kFirstDevice);
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int /*device*/) {
  *bytes = size_t{24} << 30;
  return 0;
}
int cuDeviceGetPCIBusId(char* id, int length, int /*device*/) {
  std::snprintf(id, static_cast<size_t>(length), "FFFF:FF:1F.7");
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  *value = attribute;
  return 0;
}
int cuDeviceGetP2PAttribute(int* value, int attribute, int from, int to) {
  constexpr int kAccessSupported = 2;
  constexpr int kNativeAtomicsSupported = 3;
  from -= kFirstDevice;
  to -= kFirstDevice;
  const bool nvlink = from + to == 1;
  const bool reaches = nvlink || from + to == 3 || (from == 0 && to == 2);
  *value = static_cast<int>(attribute == kAccessSupported ? reaches
                                                          : attribute == kNativeAtomicsSupported && nvlink);
  return 0;
}

}  // extern "C"
