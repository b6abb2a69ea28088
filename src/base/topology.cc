#include "base/topology.h"

#include <hwloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace tandem {
namespace {

std::string ReadCpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

Topology Discover() {
  Topology topology;
  topology.cpu_model = ReadCpuModel();
  topology.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  hwloc_topology_t hwloc = nullptr;
  if (hwloc_topology_init(&hwloc) != 0) return topology;
  if (hwloc_topology_load(hwloc) == 0) {
    // hwloc drops what the process' cpuset forbids, so these are already the allowed ones.
    topology.num_logical_cpus = std::max(1, hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PU));
    topology.num_physical_cores = std::max(1, hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE));
    topology.num_numa_nodes = std::max(1, hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_NUMANODE));
  }
  hwloc_topology_destroy(hwloc);
  return topology;
}

int64_t ReadNumber(const char* path, int64_t fallback) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : fallback;
}

}  // namespace

const Topology& MachineTopology() {
  static const Topology topology = Discover();
  return topology;
}

int64_t AvailableMemoryBytes() {
  int64_t available = MachineTopology().memory_bytes;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") {
      available = kib * 1024;
      break;
    }
  }
  // "max" does not parse as a number: no limit.
  const int64_t no_limit = std::numeric_limits<int64_t>::max();
  const int64_t limit = ReadNumber("/sys/fs/cgroup/memory.max", no_limit);
  if (limit != no_limit) {
    const int64_t used = ReadNumber("/sys/fs/cgroup/memory.current", 0);
    available = std::min(available, std::max<int64_t>(0, limit - used));
  }
  return available;
}

void SetThreadName(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace tandem
