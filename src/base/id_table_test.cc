#include "base/id_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <unordered_map>

#include "base/hashed_uniform.h"

namespace tandem {
namespace {

TEST(IdTableTest, AsAMapOfTheStandardLibrary) {
  // Ids that follow one another, and ids from everywhere, some of them twice.
  for (const uint64_t range : {uint64_t{600}, ~uint64_t{0}}) {
    constexpr uint64_t kMost = 512;
    IdTable<int> table(kMost);
    std::unordered_map<uint64_t, int> map;
    for (uint64_t i = 0; i < kMost; ++i) {
      const uint64_t id = HashedBits(range, i) % range;
      table.Insert(id, static_cast<int>(i));
      map.emplace(id, static_cast<int>(i));
    }
    for (const auto& [id, value] : map) {
      ASSERT_NE(table.Find(id), nullptr) << id;
      EXPECT_EQ(*table.Find(id), value) << id;
    }
    for (uint64_t i = kMost; i < 3 * kMost; ++i) {
      const uint64_t id = HashedBits(range, i) % range;
      EXPECT_EQ(table.Find(id) != nullptr, map.contains(id)) << id;
    }
  }
}

TEST(IdTableTest, OfNothing) {
  const IdTable<int> table(0);
  EXPECT_EQ(table.Find(0), nullptr);
  EXPECT_EQ(table.Find(7), nullptr);
}

}  // namespace
}  // namespace tandem
