#include "server/response_store.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

TEST(ResponseStore, FindsWhatTheSameKeyStored) {
  ResponseStore store({});
  store.Add("resp_r_1", "alice", {.body = "{}", .input = "[]"});
  EXPECT_EQ(store.Find("resp_r_1", "alice")->input, "[]");
  EXPECT_FALSE(store.Find("resp_r_1", "bob"));
  EXPECT_FALSE(store.Find("resp_r_1", ""));
  EXPECT_FALSE(store.Remove("resp_r_1", "bob"));
  EXPECT_TRUE(store.Remove("resp_r_1", "alice"));
  EXPECT_FALSE(store.Find("resp_r_1", "alice"));
  EXPECT_EQ(store.num_bytes(), 0);
}

TEST(ResponseStore, ForgetsTheOldestByCountAndByBytes) {
  ResponseStore few({.max_count = 2});
  for (const char* const id : {"a", "b", "c"}) few.Add(id, "", {.body = "{}", .input = "[]"});
  EXPECT_FALSE(few.Find("a", ""));
  EXPECT_TRUE(few.Find("b", ""));
  EXPECT_TRUE(few.Find("c", ""));

  ResponseStore small({.max_bytes = 250});
  for (const char* const id : {"a", "b", "c"})
    small.Add(id, "", {.body = std::string(100, 'x'), .input = ""});
  EXPECT_FALSE(small.Find("a", ""));
  EXPECT_TRUE(small.Find("c", ""));
  small.Add("d", "", {.body = std::string(1000, 'x'), .input = ""});
  EXPECT_FALSE(small.Find("d", "")) << "has no room at all";
  EXPECT_TRUE(small.Find("c", "")) << "stays where what came later had no room";
  EXPECT_LE(small.num_bytes(), 250);
}

TEST(ResponseStore, StoresNothingWhereItIsOff) {
  for (const ResponseStoreOptions& options :
       {ResponseStoreOptions{.max_bytes = 0}, ResponseStoreOptions{.max_count = 0}}) {
    ResponseStore store(options);
    EXPECT_FALSE(store.enabled());
    store.Add("a", "", {.body = "{}", .input = "[]"});
    EXPECT_FALSE(store.Find("a", ""));
  }
}

TEST(ResponseStore, IdsNameTheReplicaAndItemsTheirResponse) {
  const ResponseStore store({.replica_id = "east1"});
  const std::string id = store.NewId();
  EXPECT_TRUE(id.starts_with("resp_east1_"));
  EXPECT_EQ(id.size(), std::string("resp_east1_").size() + 32);
  EXPECT_NE(id, store.NewId());
  EXPECT_EQ(ResponseItemId("msg", "resp_east1_ab", "0"), "msg_east1_ab_0");
  EXPECT_EQ(ResponseIdOfItem("msg_east1_ab_0"), "resp_east1_ab");
  EXPECT_EQ(ResponseIdOfItem("msg"), "");
  EXPECT_EQ(ResponseIdOfItem("msg_1"), "");
}

}  // namespace
}  // namespace tandem
