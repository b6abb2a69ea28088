#include "cpu_attention/worker_cores.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <cstddef>

namespace tandem {

std::vector<WorkerCore> ChooseWorkerCores(const std::vector<NumaNode>& nodes, int num_workers,
                                          int num_taken) {
  std::vector<std::vector<int>> free_cores;
  free_cores.reserve(nodes.size());
  for (const NumaNode& node : nodes) free_cores.push_back(node.cores);
  std::vector<WorkerCore> chosen;
  for (int i = 0; i < num_taken + num_workers; ++i) {
    WorkerCore core;
    for (size_t tries = 0; tries < free_cores.size() && core.cpu < 0; ++tries) {
      const size_t node = (static_cast<size_t>(i) + tries) % free_cores.size();
      core.place = static_cast<int>(node);
      if (free_cores[node].empty()) continue;
      core.cpu = free_cores[node].back();
      free_cores[node].pop_back();
    }
    if (i >= num_taken) chosen.push_back(core);
  }
  return chosen;
}

void PrepareWorkerThread(const WorkerCore& core, bool pin) {
  constexpr unsigned long kTimerSlackNs = 1;
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  if (!pin || core.cpu < 0) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(core.cpu), &cpus);
  static_cast<void>(pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus));
}

}  // namespace tandem
