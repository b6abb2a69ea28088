// Which cores the workers of CPU attention run on.
#pragma once

#include <vector>

#include "base/topology.h"

namespace tandem {

struct WorkerCore {
  int cpu = -1;   // logical cpu to pin to; -1: none
  int place = 0;  // in the nodes that it was chosen from: the part of the cache that it reads first
};

// One physical core of these nodes for each worker, from the last core down (the first ones serve interrupts
// and, by habit, other programs), alternating between the nodes. More workers than cores: the surplus is not
// pinned. num_taken: workers that have chosen among the same nodes before, of other shards.
std::vector<WorkerCore> ChooseWorkerCores(const std::vector<NumaNode>& nodes, int num_workers, int num_taken);

// Of the calling thread: pins it if asked (a refusal is no error: it then runs where the system wants) and
// makes its sleeps precise.
void PrepareWorkerThread(const WorkerCore& core, bool pin);

}  // namespace tandem
