// Which NUMA nodes the shards of one host have their part of the cpu tier and their workers of CPU attention
// on.
#pragma once

#include <vector>

#include "base/topology.h"

namespace tandem {

// By shard, as indices in nodes; empty: all of them.
//
// A shard has the nodes that are nearest to its GPU, so that neither what its CPU attention reads nor what
// its GPU exchanges with it crosses sockets. Each node belongs to one of those with GPUs. Where some shards
// would have fewer cores than others that way, which all would wait for, and where nodes are not known, every
// shard is on all nodes. nodes: MachineTopology().numa_nodes. gpu_nodes: of each shard the os_index of its
// GPU's node; -1: unknown.
std::vector<std::vector<int>> NodesOfShards(const std::vector<NumaNode>& nodes,
                                            const std::vector<int>& gpu_nodes);

}  // namespace tandem
