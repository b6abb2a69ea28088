#include "base/provenance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace tandem {
namespace {

// What Provenance stands for, byte by byte.
using Bytes = std::vector<Source>;

Provenance Of(const Bytes& bytes) {
  Provenance result;
  for (size_t i = 0; i < bytes.size(); ++i) result.Append(i, bytes[i]);
  return result;
}

void ExpectIs(const Provenance& provenance, const Bytes& bytes) {
  Provenance::Cursor cursor(provenance);
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(provenance.At(i), bytes[i]) << i;
    ASSERT_EQ(cursor.At(i), bytes[i]) << i;
    size_t end = i;
    while (end < bytes.size() && bytes[end] == bytes[i]) ++end;
    ASSERT_EQ(std::min(cursor.run_end(), bytes.size()), end) << i;
  }
}

class RandomProvenance : public testing::Test {
 protected:
  size_t Below(size_t bound) { return random_() % bound; }
  Bytes Draw() {
    Bytes bytes;
    for (size_t runs = Below(6); runs > 0; --runs) {
      bytes.insert(bytes.end(), Below(5), Below(2) == 0 ? Source::kTemplate : Source::kContent);
    }
    return bytes;
  }

 private:
  std::mt19937 random_{20240611};
};

TEST_F(RandomProvenance, AppendsSlicesAndSummarizesAsBytesWould) {
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = Draw();
    const Bytes more = Draw();
    Provenance provenance = Of(bytes);
    ExpectIs(provenance, bytes);
    const size_t begin = Below(more.size() + 1);
    const size_t end = begin + Below(more.size() - begin + 1);
    provenance.Append(bytes.size(), Of(more), begin, end);
    bytes.insert(bytes.end(), more.begin() + static_cast<ptrdiff_t>(begin),
                 more.begin() + static_cast<ptrdiff_t>(end));
    ExpectIs(provenance, bytes);
    ASSERT_EQ(provenance, Of(bytes));
    const Bytes slice(more.begin() + static_cast<ptrdiff_t>(begin),
                      more.begin() + static_cast<ptrdiff_t>(end));
    ASSERT_EQ(Of(more).Slice(begin, end), Of(slice));
    const bool any = std::find(slice.begin(), slice.end(), Source::kContent) != slice.end();
    ASSERT_EQ(Of(more).Of(begin, end), any ? Source::kContent : Source::kTemplate);
    if (!bytes.empty()) {
      const bool has_content = std::find(bytes.begin(), bytes.end(), Source::kContent) != bytes.end();
      ASSERT_EQ(provenance.has_content(), has_content);
      ASSERT_EQ(provenance.is_uniform(),
                std::adjacent_find(bytes.begin(), bytes.end(), std::not_equal_to<>()) == bytes.end());
    }
  }
}

TEST_F(RandomProvenance, GoesThroughRewritings) {
  for (int round = 0; round < 20'000; ++round) {
    const Bytes bytes = Draw();
    Bytes expected;
    Alignment alignment;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min(Below(4), bytes.size() - at);
      const auto first = bytes.begin() + static_cast<ptrdiff_t>(at);
      const auto last = first + static_cast<ptrdiff_t>(size);
      if (Below(2) == 0) {
        alignment.Keep(size);
        expected.insert(expected.end(), first, last);
      } else {
        const size_t result = Below(4);
        alignment.Change(size, result);
        expected.insert(
            expected.end(), result,
            std::find(first, last, Source::kContent) != last ? Source::kContent : Source::kTemplate);
      }
      at += size;
    }
    // What is put into a text of one source is of that source.
    if (!Of(bytes).is_uniform()) ExpectIs(Of(bytes).Through(alignment), expected);
  }
}

}  // namespace
}  // namespace tandem
