#include "engine/shard_nodes.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tandem {
namespace {

using Nodes = std::vector<std::vector<int>>;

// Nodes 0, 1, ... with so many cores each; cpus are numbered through.
std::vector<NumaNode> Machine(const std::vector<int>& num_cores,
                              const std::vector<std::vector<int>>& distances = {}) {
  std::vector<NumaNode> nodes;
  int first_cpu = 0;
  for (size_t i = 0; i < num_cores.size(); ++i) {
    NumaNode& node = nodes.emplace_back();
    node.os_index = static_cast<int>(i);
    node.cores.resize(static_cast<size_t>(num_cores[i]));
    std::iota(node.cores.begin(), node.cores.end(), first_cpu);
    node.cpus = node.cores;
    first_cpu += num_cores[i];
    if (!distances.empty()) node.distances = distances[i];
  }
  return nodes;
}

TEST(NodesOfShardsTest, EachIsOnTheNodeOfItsGpu) {
  EXPECT_EQ(NodesOfShards(Machine({16, 16}), {0, 1}), (Nodes{{0}, {1}}));
  EXPECT_EQ(NodesOfShards(Machine({16, 16}), {1, 0}), (Nodes{{1}, {0}}));
  EXPECT_EQ(NodesOfShards(Machine({16, 16}), {0, 0, 1, 1}), (Nodes{{0}, {0}, {1}, {1}}));
}

TEST(NodesOfShardsTest, OneNodeOrGpusAtOneNodeLeaveAllToAll) {
  EXPECT_EQ(NodesOfShards(Machine({16}), {0, 0}), (Nodes{{}, {}}));
  EXPECT_EQ(NodesOfShards(Machine({16, 16}), {1, 1}), (Nodes{{}, {}}));
  EXPECT_EQ(NodesOfShards(Machine({16, 16}), {1}), (Nodes{{}}));
}

TEST(NodesOfShardsTest, WhatIsNotKnownLeavesAllToAll) {
  EXPECT_EQ(NodesOfShards(Machine({16, 16}), {0, -1}), (Nodes{{}, {}}));
  // A node without cores that this process may use is not among them.
  EXPECT_EQ(NodesOfShards(Machine({16, 16}), {0, 2}), (Nodes{{}, {}}));
}

TEST(NodesOfShardsTest, NobodyWaitsForAShardWithFewerCores) {
  EXPECT_EQ(NodesOfShards(Machine({16, 16}), {0, 0, 1}), (Nodes{{}, {}, {}}));
  EXPECT_EQ(NodesOfShards(Machine({4, 16}), {0, 1}), (Nodes{{}, {}}));
  EXPECT_EQ(NodesOfShards(Machine({15, 16}), {0, 1}), (Nodes{{0}, {1}}));
}

TEST(NodesOfShardsTest, NodesWithoutAGpuBelongToTheNearestThatHasOne) {
  // Two sockets of two nodes each, a GPU at the second node of each socket.
  const std::vector<std::vector<int>> distances = {
      {10, 12, 32, 32}, {12, 10, 32, 32}, {32, 32, 10, 12}, {32, 32, 12, 10}};
  EXPECT_EQ(NodesOfShards(Machine({8, 8, 8, 8}, distances), {1, 3}), (Nodes{{0, 1}, {2, 3}}));
  EXPECT_EQ(NodesOfShards(Machine({8, 8, 8, 8}, distances), {3, 1, 3, 1}),
            (Nodes{{2, 3}, {0, 1}, {2, 3}, {0, 1}}));
  // All GPUs in one socket, at both of its nodes: the other socket is as far from either.
  EXPECT_EQ(NodesOfShards(Machine({8, 8, 8, 8}, distances), {0, 1}), (Nodes{{0, 2}, {1, 3}}));
}

TEST(NodesOfShardsTest, WithoutDistancesOtherNodesAreDealtOut) {
  EXPECT_EQ(NodesOfShards(Machine({8, 8, 8, 8}), {0, 1}), (Nodes{{0, 2}, {1, 3}}));
}

}  // namespace
}  // namespace tandem
