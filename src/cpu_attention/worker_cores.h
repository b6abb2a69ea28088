// Which cores the workers of CPU attention run on.
#pragma once

#include <vector>

namespace tandem {

struct WorkerCore {
  int cpu = -1;        // logical cpu to pin to; -1: none
  int node_index = 0;  // in MachineTopology().numa_nodes: the part of the cache that it reads first
};

// One physical core for each worker, from the last core down (the first ones serve interrupts and, by habit,
// other programs), alternating between NUMA nodes. More workers than cores: the surplus is not pinned.
// num_taken: workers that have chosen before, of other shards.
std::vector<WorkerCore> ChooseWorkerCores(int num_workers, int num_taken);

// Of the calling thread: pins it if asked (a refusal is no error: it then runs where the system wants) and
// makes its sleeps precise.
void PrepareWorkerThread(const WorkerCore& core, bool pin);

}  // namespace tandem
