#include "server/cache_sharing.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tandem {
namespace {

TEST(CacheSharing, TheSameSharingHasTheSameSalt) {
  EXPECT_EQ(EngineCacheSalt({}), "");
  EXPECT_EQ(EngineCacheSalt({.key_name = "alice", .salt = "s"}),
            EngineCacheSalt({.key_name = "alice", .salt = "s"}));
}

// Salts and names that read like the parts of each other.
TEST(CacheSharing, NoSaltReadsLikeAnothersKey) {
  const CacheSharing all[] = {{},
                              {.salt = "alice"},
                              {.key_name = "alice"},
                              {.key_name = "alice", .salt = "alice"},
                              {.key_name = "a", .salt = "lice"},
                              {.key_name = "alicea", .salt = "lice"},
                              {.salt = "5:alice0:"},
                              {.salt = "0:5:alice"},
                              {.key_name = "5:alice", .salt = ""},
                              {.key_name = "5", .salt = "alice"},
                              {.key_name = "alice0:", .salt = ""},
                              {.key_name = "1:a", .salt = "b"},
                              {.key_name = "1", .salt = "a1:b"},
                              {.salt = std::string(1, '\0')},
                              {.salt = "0:"}};
  std::set<std::string> salts;
  for (const CacheSharing& sharing : all) {
    const std::string salt = EngineCacheSalt(sharing);
    EXPECT_TRUE(salts.insert(salt).second) << salt;
  }
}

TEST(CacheSharing, WhoIsAloneIsSoEachTime) {
  const CacheSharing alone = {.key_name = "alice", .salt = "s", .alone = true};
  EXPECT_NE(EngineCacheSalt(alone), EngineCacheSalt(alone));
  EXPECT_NE(EngineCacheSalt(alone), EngineCacheSalt({.key_name = "alice", .salt = "s"}));
  EXPECT_NE(EngineCacheSalt({.alone = true}), "");
}

}  // namespace
}  // namespace tandem
