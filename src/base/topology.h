// What this machine is made of, as far as it matters for placing threads and memory and for sizing caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem {

// A NUMA node with memory and with logical CPUs that this process may run on.
struct NumaNode {
  int os_index = 0;          // as the kernel numbers it; -1: the machine says nothing of nodes
  int64_t memory_bytes = 0;  // installed, 0 if unknown
  std::vector<int> cpus;     // logical CPUs of the node that this process may run on, ascending
  std::vector<int> cores;    // one of them for each physical core
  // To each of Topology::numa_nodes, as the firmware has it: the nearer the less. Empty: it says nothing.
  std::vector<int> distances;
};

struct Topology {
  int num_physical_cores = 1;  // that this process may run on
  int num_logical_cpus = 1;    // that this process may run on
  int num_numa_nodes = 1;      // with memory, whether or not this process may run there
  // At least one, ascending by os_index. Nodes without CPUs of their own (memory expanders) are left out.
  std::vector<NumaNode> numa_nodes{
      NumaNode{.os_index = -1, .memory_bytes = 0, .cpus = {}, .cores = {}, .distances = {}}};
  int64_t memory_bytes = 0;
  std::string cpu_model;
};

// Read once, then cached. Any thread.
const Topology& MachineTopology();
// Reads it anew.
Topology DiscoverTopology();

// Of MachineTopology().numa_nodes those at these indices; all, if none is named.
std::vector<NumaNode> NumaNodesAt(const std::vector<int>& indices);

// The node (its os_index) that a PCI device is next to; -1: the machine does not say. pci_bus_id: in either
// case, "0000:3b:00.0". devices_folder: where the kernel has a folder for each.
int NumaNodeOfPciDevice(std::string pci_bus_id, const std::string& devices_folder = "/sys/bus/pci/devices");

// Bytes that can be allocated now without swapping: MemAvailable, or what the cgroups leave if that is less.
int64_t AvailableMemoryBytes();

// What the memory limits of a process' cgroups (versions 1 and 2, and the groups above) leave: the limit less
// what is used and cannot be dropped at once. INT64_MAX without a limit. cgroup_root: where the groups are
// mounted; membership_file: /proc/PID/cgroup of the process.
int64_t CgroupMemoryLeftBytes(const std::string& cgroup_root, const std::string& membership_file);

// What RLIMIT_AS and RLIMIT_DATA leave of the address space for anonymous memory. INT64_MAX without a limit.
int64_t AddressSpaceLeftBytes();

// Asks that pages of [address, address + size_bytes), not touched yet, come from the NUMA node when they are
// first touched; from another if it is full. address: at the start of a page. Error: kIo, with the system's
// reason, on a machine that refuses (no NUMA support, a sandbox): everything works, reads may cross nodes.
Status PreferNumaNode(void* address, size_t size_bytes, int os_index);

// True if the machine gives no huge pages to programs that ask for them.
bool HugePagesForbidden();

// Names the calling thread for debuggers and profilers (15 characters are kept).
void SetThreadName(const std::string& name);

}  // namespace tandem
