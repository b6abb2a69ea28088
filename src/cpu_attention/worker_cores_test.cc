#include "cpu_attention/worker_cores.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tandem {
namespace {

using Choice = std::vector<std::pair<int, int>>;  // cpu, place

NumaNode NodeWith(std::vector<int> cores) {
  NumaNode node;
  node.cores = std::move(cores);
  return node;
}

Choice Choose(const std::vector<NumaNode>& nodes, int num_workers, int num_taken) {
  Choice choice;
  for (const WorkerCore& core : ChooseWorkerCores(nodes, num_workers, num_taken))
    choice.emplace_back(core.cpu, core.place);
  return choice;
}

TEST(ChooseWorkerCoresTest, FromTheLastCoreDown) {
  EXPECT_EQ(Choose({NodeWith({0, 1, 2, 3})}, 3, 0), (Choice{{3, 0}, {2, 0}, {1, 0}}));
}

TEST(ChooseWorkerCoresTest, NodesTakeTurnsUntilOneHasNoneLeft) {
  EXPECT_EQ(Choose({NodeWith({0, 1}), NodeWith({4, 5, 6})}, 5, 0),
            (Choice{{1, 0}, {6, 1}, {0, 0}, {5, 1}, {4, 1}}));
}

TEST(ChooseWorkerCoresTest, WhatOthersHaveTakenIsLeftToThem) {
  EXPECT_EQ(Choose({NodeWith({0, 1}), NodeWith({4, 5})}, 2, 2), (Choice{{0, 0}, {4, 1}}));
}

TEST(ChooseWorkerCoresTest, WhoFindsNoCoreIsNotPinned) {
  EXPECT_EQ(Choose({NodeWith({7})}, 3, 0), (Choice{{7, 0}, {-1, 0}, {-1, 0}}));
}

}  // namespace
}  // namespace tandem
