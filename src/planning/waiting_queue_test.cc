#include "planning/waiting_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

std::vector<SequenceId> Ids(const WaitingQueue& queue) {
  std::vector<SequenceId> ids;
  for (const ScheduledSequence& each : queue) ids.push_back(each.id);
  return ids;
}

TEST(WaitingQueue, KeepsItsOrderAndCountsWhoMayWait) {
  WaitingQueue queue = {{.id = 1}, {.id = 2, .flexible = true}};
  queue.push_back({.id = 3, .flexible = true});
  queue.push_front({.id = 4});
  EXPECT_EQ(Ids(queue), (std::vector<SequenceId>{4, 1, 2, 3}));
  EXPECT_EQ(queue.num_flexible(), 2);
  EXPECT_TRUE(queue.Erase(2));
  EXPECT_FALSE(queue.Erase(2));
  EXPECT_EQ(queue.num_flexible(), 1);
  queue.pop_front();
  EXPECT_EQ(Ids(queue), (std::vector<SequenceId>{1, 3}));
  EXPECT_EQ(queue.Find(3)->id, 3U);
  EXPECT_EQ(queue.Find(9), queue.end());
}

TEST(WaitingQueue, ACopySharesTheItemsUntilOneIsChanged) {
  WaitingQueue queue = {{.id = 1}, {.id = 2}};
  const WaitingQueue copy = queue;
  EXPECT_EQ(&copy.front(), &queue.front());
  queue.pop_front();
  EXPECT_EQ(Ids(copy), (std::vector<SequenceId>{1, 2}));
  EXPECT_EQ(Ids(queue), (std::vector<SequenceId>{2}));
  EXPECT_FALSE(copy == queue);
  // Nobody shares them any more: no item is copied again.
  const ScheduledSequence* first = &queue.front();
  queue.push_back({.id = 3});
  EXPECT_EQ(&queue.front(), first);
}

}  // namespace
}  // namespace tandem
