#include "engine/sum_times.h"

#include <gtest/gtest.h>

#include "load/files_testing.h"

namespace tandem {
namespace {

class SumTimesTest : public ::testing::Test {
 protected:
  Result<std::vector<SumTime>> Read(const std::string& text, int64_t num_shards = 2) {
    return ReadSumTimes(folder_.Write("sums.json", text), num_shards);
  }
  std::string ErrorOf(const std::string& text, int64_t num_shards = 2) {
    const auto times = Read(text, num_shards);
    return times.ok() ? "" : times.error().message;
  }
  TemporaryFolder folder_;
};

constexpr const char* kSums = R"({"shards": 2, "cols": 100, "dtype": "bf16", "all_reduces": [
    {"rows": 4, "us": 9, "graph": true, "method": "nccl"}, {"rows": 4, "us": 7, "graph": true, "method": "one-shot"},
    {"rows": 4, "us": 3, "graph": false}, {"rows": 1, "us": 5, "graph": false}, {"rows": 1, "us": 6, "graph": false}]})";

TEST_F(SumTimesTest, TheFastestWayInAGraphCounts) {
  const auto times = Read(kSums);
  ASSERT_TRUE(times.ok()) << times.error().message;
  ASSERT_EQ(times->size(), 2U);
  EXPECT_EQ((*times)[0].size_bytes, 200);
  EXPECT_EQ((*times)[0].us, 5);
  EXPECT_EQ((*times)[1].size_bytes, 800);
  EXPECT_EQ((*times)[1].us, 7);
}

TEST_F(SumTimesTest, SaysWhatIsWrong) {
  EXPECT_NE(ErrorOf(kSums, 4).find("sums over 2 shards were measured, not over 4"), std::string::npos);
  EXPECT_NE(ErrorOf("{").find("sums.json"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"shards": 2, "cols": 1, "dtype": "int4"})").find("not a type of numbers"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"shards": 2, "cols": 1, "dtype": "bf16", "all_reduces": []})").find("'all_reduces'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"shards": 2, "cols": 1, "dtype": "bf16", "all_reduces": [{"rows": 1, "us": -1}]})")
                .find("'us'"),
            std::string::npos);
  const auto missing = ReadSumTimes("/no/such/file", 2);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().param, "lone-shard");
}

}  // namespace
}  // namespace tandem
