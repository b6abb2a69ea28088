#include "cli/size_flag.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

int64_t Bytes(std::string_view text) {
  const auto size = ParseSize(text);
  EXPECT_TRUE(size.ok()) << text;
  if (!size.ok()) return -1;
  EXPECT_EQ(size->unit, CacheSize::Unit::kBytes) << text;
  return size->amount;
}

TEST(SizeFlag, ReadsBytes) {
  EXPECT_EQ(Bytes("0"), 0);
  EXPECT_EQ(Bytes("1048576"), 1048576);
  EXPECT_EQ(Bytes("4GiB"), int64_t{4} << 30);
  EXPECT_EQ(Bytes("4gib"), int64_t{4} << 30);
  EXPECT_EQ(Bytes("4G"), int64_t{4} << 30);
  EXPECT_EQ(Bytes("4 GiB"), int64_t{4} << 30);
  EXPECT_EQ(Bytes("512MB"), 512'000'000);
  EXPECT_EQ(Bytes("1.5KiB"), 1536);
  EXPECT_EQ(Bytes("2TiB"), int64_t{2} << 40);
  EXPECT_EQ(Bytes("7b"), 7);
}

TEST(SizeFlag, ReadsTokens) {
  const auto size = ParseSize("26400tok");
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->unit, CacheSize::Unit::kTokens);
  EXPECT_EQ(size->amount, 26400);
}

TEST(SizeFlag, RefusesEverythingElse) {
  for (const char* text :
       {"", "x", "-1", "4XiB", "1.5tok", "GiB", "nan", "inf", "1e5", "99999999TiB", "4GiBs", "--"}) {
    const auto size = ParseSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(size.error().message.find('\'' + std::string(text) + '\''), std::string::npos);
  }
  EXPECT_FALSE(ParseByteSize("5tok").ok());
  EXPECT_TRUE(ParseByteSize("5MiB").ok());
}

}  // namespace
}  // namespace tandem
