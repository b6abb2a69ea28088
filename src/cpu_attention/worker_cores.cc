#include "cpu_attention/worker_cores.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <cstddef>

namespace tandem {
namespace {

// [node][core], nodes without cores left out.
std::vector<std::vector<int>> CoresByNode() {
  std::vector<std::vector<int>> nodes;
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nodes;
  if (hwloc_topology_load(topology) == 0) {
    std::vector<std::vector<int>> by_node(
        static_cast<size_t>(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE)));
    const int num_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < num_cores; ++i) {
      hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
      const int cpu = hwloc_bitmap_first(core->cpuset);
      for (size_t n = 0; n < by_node.size(); ++n) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(n));
        if (cpu >= 0 && hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(cpu)) != 0) {
          by_node[n].push_back(cpu);
          break;
        }
      }
    }
    for (auto& cores : by_node) {
      if (!cores.empty()) nodes.push_back(std::move(cores));
    }
  }
  hwloc_topology_destroy(topology);
  return nodes;
}

}  // namespace

std::vector<WorkerCore> ChooseWorkerCores(int num_workers) {
  std::vector<std::vector<int>> nodes = CoresByNode();
  std::vector<WorkerCore> chosen;
  for (int i = 0; i < num_workers; ++i) {
    WorkerCore core;
    for (size_t tries = 0; tries < nodes.size() && core.cpu < 0; ++tries) {
      const size_t node = (static_cast<size_t>(i) + tries) % nodes.size();
      core.node_index = static_cast<int>(node);
      if (nodes[node].empty()) continue;
      core.cpu = nodes[node].back();
      nodes[node].pop_back();
    }
    chosen.push_back(core);
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
