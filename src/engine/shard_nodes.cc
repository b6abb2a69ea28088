#include "engine/shard_nodes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tandem {
namespace {

// A node with GPUs, and what belongs to it.
struct Home {
  size_t node = 0;           // in nodes
  int64_t num_shards = 0;    // whose GPUs are next to it
  int64_t num_cores = 0;     // of all members
  std::vector<int> members;  // in nodes, ascending
};

// Of what all cores give a shard on average, a shard has at least so much on nodes of its own.
constexpr double kLeastShare = 0.9;

constexpr int kFarAway = std::numeric_limits<int>::max();

int Distance(const std::vector<NumaNode>& nodes, size_t from, size_t to) {
  if (from == to) return 0;
  return nodes[from].distances.size() == nodes.size() ? nodes[from].distances[to] : kFarAway;
}

// Empty where a GPU's node is not among the nodes.
std::vector<Home> HomesOf(const std::vector<NumaNode>& nodes, const std::vector<int>& gpu_nodes) {
  std::vector<Home> homes;
  for (size_t node = 0; node < nodes.size(); ++node) {
    const int64_t num_shards = std::ranges::count(gpu_nodes, nodes[node].os_index);
    if (num_shards > 0) homes.push_back({.node = node, .num_shards = num_shards});
  }
  int64_t num_housed = 0;
  for (const Home& home : homes) num_housed += home.num_shards;
  if (num_housed != static_cast<int64_t>(gpu_nodes.size())) homes.clear();
  return homes;
}

}  // namespace

std::vector<std::vector<int>> NodesOfShards(const std::vector<NumaNode>& nodes,
                                            const std::vector<int>& gpu_nodes) {
  std::vector<std::vector<int>> all(gpu_nodes.size());
  std::vector<Home> homes = HomesOf(nodes, gpu_nodes);
  if (homes.size() < 2) return all;
  int64_t num_cores = 0;
  for (size_t node = 0; node < nodes.size(); ++node) {
    // Of equally near ones the one that gives its shards the fewest cores so far.
    const auto nearest = std::ranges::min_element(homes, [&](const Home& a, const Home& b) {
      const int to_a = Distance(nodes, node, a.node);
      const int to_b = Distance(nodes, node, b.node);
      return to_a != to_b ? to_a < to_b : a.num_cores * b.num_shards < b.num_cores * a.num_shards;
    });
    nearest->members.push_back(static_cast<int>(node));
    nearest->num_cores += static_cast<int64_t>(nodes[node].cores.size());
    num_cores += static_cast<int64_t>(nodes[node].cores.size());
  }
  const double fair = kLeastShare * static_cast<double>(num_cores) / static_cast<double>(gpu_nodes.size());
  std::vector<std::vector<int>> of_shards = all;
  for (const Home& home : homes) {
    if (static_cast<double>(home.num_cores) < fair * static_cast<double>(home.num_shards)) return all;
    for (size_t shard = 0; shard < gpu_nodes.size(); ++shard) {
      if (gpu_nodes[shard] == nodes[home.node].os_index) of_shards[shard] = home.members;
    }
  }
  return of_shards;
}

}  // namespace tandem
