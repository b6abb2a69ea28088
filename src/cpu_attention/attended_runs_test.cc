#include "cpu_attention/attended_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "cpu_attention/attention_kernels.h"

namespace tandem {
namespace {

constexpr int64_t kBlockSize = 32;
constexpr int64_t kBlocks = kPartitionTokens / kBlockSize;  // of a partition

// Each letter is a partition of blocks of its own, the same letter the same blocks; then num_tokens more.
DecodeSequence Sequence(const std::string& partitions, int64_t num_tokens) {
  DecodeSequence sequence;
  for (const char letter : partitions) {
    for (int64_t i = 0; i < kBlocks; ++i)
      sequence.block_table.push_back(static_cast<int32_t>((letter - 'a') * kBlocks + i));
  }
  static int32_t next = 100000;
  for (int64_t i = 0; i < num_tokens; i += kBlockSize) sequence.block_table.push_back(next++);
  sequence.context_len = static_cast<int64_t>(partitions.size()) * kPartitionTokens + num_tokens;
  return sequence;
}

// "0,1:0-2" for each run, in the order of rows and partitions.
std::set<std::string> TextOf(const std::vector<AttendedRun>& runs) {
  std::set<std::string> texts;
  for (const AttendedRun& run : runs) {
    std::string text;
    for (const int32_t row : run.rows) text += (text.empty() ? "" : ",") + std::to_string(row);
    texts.insert(text + ":" + std::to_string(run.first_partition) + "-" + std::to_string(run.end_partition));
  }
  return texts;
}

TEST(AttendedRunsTest, BeginningsFormATree) {
  const std::vector<DecodeSequence> sequences = {Sequence("abc", 1), Sequence("abd", 40), Sequence("aef", 5),
                                                 Sequence("gh", 5)};
  const std::set<std::string> expected = {"0,1,2:0-1", "0,1:1-2", "0:2-4", "1:2-4", "2:1-4", "3:0-3"};
  EXPECT_EQ(TextOf(AttendedRuns(sequences, kBlockSize, 0, kRowsPerGroup)), expected);
  const std::set<std::string> apart = {"0:0-4", "1:0-4", "2:0-4", "3:0-3"};
  EXPECT_EQ(TextOf(AttendedRuns(sequences, kBlockSize, 0, 1)), apart);
}

TEST(AttendedRunsTest, OnlyWholePartitionsThatAllSee) {
  // The new token of row 1 is in the partition that row 0 has as a whole.
  std::vector<DecodeSequence> sequences = {Sequence("ab", 7), Sequence("ab", 0)};
  const std::set<std::string> expected = {"0,1:0-1", "0:1-3", "1:1-2"};
  EXPECT_EQ(TextOf(AttendedRuns(sequences, kBlockSize, 0, kRowsPerGroup)), expected);
  // One block of a partition differs, and its first does not.
  sequences = {Sequence("ab", 7), Sequence("ab", 7)};
  sequences[1].block_table[kBlocks - 1] = 77;
  const std::set<std::string> apart = {"0:0-3", "1:0-3"};
  EXPECT_EQ(TextOf(AttendedRuns(sequences, kBlockSize, 0, kRowsPerGroup)), apart);
}

TEST(AttendedRunsTest, WindowsBeginWhereTheyBegin) {
  const std::vector<DecodeSequence> sequences = {Sequence("abcd", 1), Sequence("abcd", 600)};
  // Row 0 sees keys from 549 on, row 1 from 1148.
  const std::set<std::string> expected = {"0:1-3", "1:2-3", "0,1:3-4", "0:4-5", "1:4-6"};
  EXPECT_EQ(TextOf(AttendedRuns(sequences, kBlockSize, 1500, kRowsPerGroup)), expected);
}

TEST(AttendedRunsTest, MoreRowsThanARunHasAreSpreadEvenly) {
  const std::vector<DecodeSequence> sequences(10, Sequence("ab", 3));
  std::vector<size_t> sizes;
  for (const AttendedRun& run : AttendedRuns(sequences, kBlockSize, 0, kRowsPerGroup)) {
    if (run.rows.size() > 1) sizes.push_back(run.rows.size());
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{5, 5}));
}

// Every partition that a row sees is in one run, and who shares one has the same blocks.
TEST(AttendedRunsTest, CoversEveryPartitionOnce) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    std::vector<DecodeSequence> sequences;
    const size_t num_rows = 1 + random() % 20;
    for (size_t i = 0; i < num_rows; ++i) {
      std::string partitions;
      for (size_t depth = random() % 6; depth > 0; --depth)
        partitions += static_cast<char>('a' + 2 * partitions.size() + random() % 2);
      sequences.push_back(Sequence(partitions, static_cast<int64_t>(1 + random() % 700)));
    }
    const int64_t window = random() % 2 == 0 ? static_cast<int64_t>(1 + random() % 2000) : 0;
    std::vector<std::vector<int>> times(num_rows);
    for (size_t i = 0; i < num_rows; ++i)
      times[i].resize(static_cast<size_t>((sequences[i].context_len - 1) / kPartitionTokens + 1));
    for (const AttendedRun& run : AttendedRuns(sequences, kBlockSize, window, kRowsPerGroup)) {
      ASSERT_FALSE(run.rows.empty());
      EXPECT_LE(static_cast<int64_t>(run.rows.size()), kRowsPerGroup);
      EXPECT_TRUE(std::is_sorted(run.rows.begin(), run.rows.end()));
      const auto& first = sequences[static_cast<size_t>(run.rows.front())].block_table;
      for (const int32_t row : run.rows) {
        const DecodeSequence& sequence = sequences[static_cast<size_t>(row)];
        for (int64_t p = run.first_partition; p < run.end_partition; ++p) {
          ++times[static_cast<size_t>(row)][static_cast<size_t>(p)];
          if (run.rows.size() == 1) continue;
          EXPECT_LT((p + 1) * kPartitionTokens, sequence.context_len);
          EXPECT_LE(FirstKey(sequence, window), p * kPartitionTokens);
          EXPECT_TRUE(std::equal(first.begin() + p * kBlocks, first.begin() + (p + 1) * kBlocks,
                                 sequence.block_table.begin() + p * kBlocks));
        }
      }
    }
    for (size_t i = 0; i < num_rows; ++i) {
      const auto first = static_cast<size_t>(FirstKey(sequences[i], window) / kPartitionTokens);
      for (size_t p = 0; p < times[i].size(); ++p) EXPECT_EQ(times[i][p], p < first ? 0 : 1);
    }
  }
}

}  // namespace
}  // namespace tandem
