#include "kv_events/kv_event_queue.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(KvEventQueue, AGapOfNumbersShowsWhatWasDropped) {
  KvEventQueue queue(2);
  for (int i = 0; i < 4; ++i) queue.Push(i, KvEvents(3));
  EXPECT_EQ(queue.counts().events, 12U);
  EXPECT_EQ(queue.counts().dropped_events, 6U);
  EXPECT_EQ(queue.Take()->sequence_number, 0U);
  queue.Push(4, KvEvents(1));
  EXPECT_EQ(queue.Take()->sequence_number, 1U);
  const auto last = queue.Take();
  EXPECT_EQ(last->sequence_number, 4U);
  EXPECT_EQ(last->unix_seconds, 4);
  EXPECT_EQ(last->events.size(), 1U);
  EXPECT_FALSE(queue.Take());
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.counts().dropped_events, 6U);
}

}  // namespace
}  // namespace tandem
