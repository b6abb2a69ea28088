#include "base/topology.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace tandem {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct BitmapFree {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, BitmapFree>;

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

int CountWithin(hwloc_topology_t hwloc, hwloc_obj_type_t type, const Bitmap& cpus) {
  int count = 0;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(hwloc, type, object)) != nullptr) {
    if (hwloc_bitmap_intersects(object->cpuset, cpus.get()) != 0) ++count;
  }
  return std::max(1, count);
}

std::vector<NumaNode> NodesWithin(hwloc_topology_t hwloc, const Bitmap& cpus) {
  std::vector<hwloc_obj_t> objects;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    objects.push_back(object);
  }
  std::sort(objects.begin(), objects.end(),
            [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  // hwloc gives a node without CPUs those of its neighbours: each CPU counts for the first node that has it.
  const Bitmap left(hwloc_bitmap_dup(cpus.get()));
  const Bitmap own(hwloc_bitmap_alloc());
  std::vector<NumaNode> nodes;
  for (hwloc_obj_t node : objects) {
    hwloc_bitmap_and(own.get(), node->cpuset, left.get());
    if (node->attr->numanode.local_memory == 0 || hwloc_bitmap_iszero(own.get()) != 0) continue;
    NumaNode& added = nodes.emplace_back();
    added.os_index = static_cast<int>(node->os_index);
    added.memory_bytes = static_cast<int64_t>(node->attr->numanode.local_memory);
    for (int cpu = hwloc_bitmap_first(own.get()); cpu >= 0; cpu = hwloc_bitmap_next(own.get(), cpu)) {
      added.cpus.push_back(cpu);
    }
    hwloc_obj_t core = nullptr;
    while ((core = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_CORE, core)) != nullptr) {
      const Bitmap of_core(hwloc_bitmap_dup(core->cpuset));
      hwloc_bitmap_and(of_core.get(), of_core.get(), own.get());
      const int cpu = hwloc_bitmap_first(of_core.get());
      if (cpu >= 0) added.cores.push_back(cpu);
    }
    hwloc_bitmap_andnot(left.get(), left.get(), own.get());
  }
  return nodes;
}

// Of nodes, one to the other.
void ReadDistances(hwloc_topology_t hwloc, std::vector<NumaNode>* nodes) {
  unsigned num_found = 1;
  hwloc_distances_s* found = nullptr;
  if (hwloc_distances_get_by_type(hwloc, HWLOC_OBJ_NUMANODE, &num_found, &found,
                                  HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
      num_found == 0) {
    return;
  }
  const auto place = [&](const NumaNode& node) {
    unsigned at = 0;
    while (at < found->nbobjs && static_cast<int>(found->objs[at]->os_index) != node.os_index) ++at;
    return at;
  };
  for (NumaNode& from : *nodes) {
    for (const NumaNode& to : *nodes) {
      if (place(from) == found->nbobjs || place(to) == found->nbobjs) continue;
      from.distances.push_back(static_cast<int>(found->values[place(from) * found->nbobjs + place(to)]));
    }
    if (from.distances.size() != nodes->size()) from.distances.clear();
  }
  hwloc_distances_release(hwloc, found);
}

// "max" does not parse as a number: no limit. Neither does a file that is not there.
int64_t ReadNumber(const std::string& path, int64_t fallback) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : fallback;
}

// The number behind key in a file of "key number" lines.
int64_t ReadField(const std::string& path, std::string_view wanted, int64_t fallback) {
  std::ifstream file(path);
  std::string key;
  int64_t value = 0;
  std::string rest;
  while (file >> key >> value) {
    if (key == wanted) return value;
    std::getline(file, rest);
  }
  return fallback;
}

// Names of the files of one version of cgroups.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* droppable;  // field of memory.stat: file pages that nobody used lately
};
constexpr CgroupFiles kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"/memory.max", "/memory.current", "inactive_file"};

// The tightest of a group and the groups above it. Seen from inside a container the path may not exist; then
// its nearest ancestor that does counts.
int64_t LeftInGroups(const std::string& mount, std::string path, const CgroupFiles& files) {
  int64_t left = kNoLimit;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string group = mount + path;
    const int64_t limit = ReadNumber(group + files.limit, kNoLimit);
    if (limit != kNoLimit) {
      const int64_t used =
          ReadNumber(group + files.usage, 0) - ReadField(group + "/memory.stat", files.droppable, 0);
      left = std::min(left, std::max<int64_t>(0, limit - std::max<int64_t>(0, used)));
    }
    if (path.empty()) return left;
    path.erase(path.find_last_of('/'));
  }
}

int64_t LimitOf(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kNoLimit)));
}

}  // namespace

Topology DiscoverTopology() {
  Topology topology;
  topology.cpu_model = ReadCpuModel();
  topology.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  hwloc_topology_t hwloc = nullptr;
  if (hwloc_topology_init(&hwloc) != 0) return topology;
  if (hwloc_topology_load(hwloc) == 0) {
    // hwloc drops what the cpuset cgroup forbids; the affinity mask (taskset) comes on top.
    const Bitmap cpus(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(hwloc)));
    const Bitmap affinity(hwloc_bitmap_alloc());
    if (hwloc_get_cpubind(hwloc, affinity.get(), HWLOC_CPUBIND_PROCESS) == 0 &&
        hwloc_bitmap_intersects(affinity.get(), cpus.get()) != 0) {
      hwloc_bitmap_and(cpus.get(), cpus.get(), affinity.get());
    }
    topology.num_logical_cpus = CountWithin(hwloc, HWLOC_OBJ_PU, cpus);
    topology.num_physical_cores = CountWithin(hwloc, HWLOC_OBJ_CORE, cpus);
    topology.num_numa_nodes = std::max(1, hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_NUMANODE));
    std::vector<NumaNode> nodes = NodesWithin(hwloc, cpus);
    ReadDistances(hwloc, &nodes);
    if (!nodes.empty()) topology.numa_nodes = std::move(nodes);
  }
  hwloc_topology_destroy(hwloc);
  return topology;
}

const Topology& MachineTopology() {
  static const Topology topology = DiscoverTopology();
  return topology;
}

std::vector<NumaNode> NumaNodesAt(const std::vector<int>& indices) {
  const std::vector<NumaNode>& all = MachineTopology().numa_nodes;
  if (indices.empty()) return all;
  std::vector<NumaNode> nodes;
  nodes.reserve(indices.size());
  for (const int index : indices) nodes.push_back(all[static_cast<size_t>(index)]);
  return nodes;
}

int NumaNodeOfPciDevice(std::string pci_bus_id, const std::string& devices_folder) {
  // The driver writes it in capitals on some versions.
  for (char& c : pci_bus_id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::ifstream file(fmt::format("{}/{}/numa_node", devices_folder, pci_bus_id));
  int node = -1;
  return file >> node ? node : -1;
}

int64_t CgroupMemoryLeftBytes(const std::string& cgroup_root, const std::string& membership_file) {
  int64_t left = kNoLimit;
  std::ifstream membership(membership_file);
  std::string line;
  // HIERARCHY:CONTROLLERS:PATH; version 2 names no controllers.
  while (std::getline(membership, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    std::string path = line.substr(second + 1);
    // Outside of what this process sees; the root that it does see counts.
    if (path.empty() || path.front() != '/' || path.find("/..") != std::string::npos) path.assign(1, '/');
    if (controllers == ",,") {
      left = std::min(left, LeftInGroups(cgroup_root, path, kVersion2));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, LeftInGroups(cgroup_root + "/memory", path, kVersion1));
    }
  }
  return left;
}

int64_t AvailableMemoryBytes() {
  constexpr int64_t kUnknown = -1;
  const int64_t kib = ReadField("/proc/meminfo", "MemAvailable:", kUnknown);
  const int64_t available = kib == kUnknown ? MachineTopology().memory_bytes : kib * 1024;
  return std::min(available, CgroupMemoryLeftBytes("/sys/fs/cgroup", "/proc/self/cgroup"));
}

int64_t AddressSpaceLeftBytes() {
  const int64_t address_space = LimitOf(RLIMIT_AS);
  const int64_t data = LimitOf(RLIMIT_DATA);
  if (address_space == kNoLimit && data == kNoLimit) return kNoLimit;
  // In pages: size resident shared text lib data dirty.
  std::ifstream statm("/proc/self/statm");
  std::array<int64_t, 6> pages{};
  for (int64_t& value : pages) statm >> value;
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  const auto left = [&](int64_t limit, int64_t used) {
    return limit == kNoLimit ? kNoLimit : std::max<int64_t>(0, limit - used);
  };
  return std::min(left(address_space, pages[0] * page_bytes), left(data, pages[5] * page_bytes));
}

Status PreferNumaNode(void* address, size_t size_bytes, int os_index) {
  constexpr size_t kMaxNodes = 1024;
  constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
  if (os_index < 0 || static_cast<size_t>(os_index) >= kMaxNodes) {
    return MakeError(ErrorCode::kIo, "no NUMA node {}", os_index);
  }
  std::array<unsigned long, kMaxNodes / kWordBits> mask{};
  const auto node = static_cast<size_t>(os_index);
  mask[node / kWordBits] |= 1UL << (node % kWordBits);
  // Preferred, not bound: a node that is full would have the process killed.
  if (syscall(SYS_mbind, address, size_bytes, MPOL_PREFERRED, mask.data(), kMaxNodes + 1, 0) != 0) {
    return MakeError(ErrorCode::kIo, "memory cannot be placed on NUMA node {}: {}", os_index,
                     std::strerror(errno));
  }
  return {};
}

bool HugePagesForbidden() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  // Not there: a kernel without them, or a sandbox that does not say.
  return std::getline(file, line) && line.find("[never]") != std::string::npos;
}

void SetThreadName(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace tandem
