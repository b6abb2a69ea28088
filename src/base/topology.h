// What this machine is made of, as far as it matters for placing threads and sizing caches.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

struct Topology {
  int num_physical_cores = 1;  // that this process may run on
  int num_logical_cpus = 1;    // that this process may run on
  int num_numa_nodes = 1;
  int64_t memory_bytes = 0;
  std::string cpu_model;
};

// Read once, then cached. Any thread.
const Topology& MachineTopology();

// Bytes that can be allocated now without swapping: MemAvailable, or what the cgroup leaves if that is less.
int64_t AvailableMemoryBytes();

// Names the calling thread for debuggers and profilers (15 characters are kept).
void SetThreadName(const std::string& name);

}  // namespace tandem
