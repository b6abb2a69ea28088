#include "bench/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tandem {
namespace {

using testing::ElementsAre;

// What comes of text that arrives in pieces of `piece` bytes.
std::vector<std::string> Parse(std::string_view text, size_t piece) {
  SseParser parser;
  std::vector<std::string> events;
  for (size_t begin = 0; begin < text.size(); begin += piece) {
    parser.Feed(text.substr(begin, piece), [&](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

TEST(SseParser, EventsMayBeCutAtEveryByte) {
  const std::string text =
      ": a comment\n\ndata: {\"a\":1}\n\ndata:no space\r\n\r\nevent: x\nid: 5\ndata: two\ndata:  lines\n\n"
      "database: no\n\ndata: cr\r\rdata\n\ndata: [DONE]\n\ndata: not complete\n";
  const std::vector<std::string> expected = {"{\"a\":1}", "no space", "two\n lines", "cr", "", "[DONE]"};
  for (size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(Parse(text, piece), expected) << piece;
  // Two pieces, cut at every place.
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    SseParser parser;
    std::vector<std::string> events;
    const auto keep = [&](std::string_view data) { events.emplace_back(data); };
    parser.Feed(std::string_view(text).substr(0, cut), keep);
    parser.Feed(std::string_view(text).substr(cut), keep);
    EXPECT_EQ(events, expected) << cut;
  }
}

TEST(SseParser, SeveralEventsMayComeAtOnce) {
  EXPECT_THAT(Parse("data: a\n\ndata: b\n\n\n\ndata: c\n\n", 1000), ElementsAre("a", "b", "c"));
}

TEST(SseParser, ResetForgetsWhatIsNotComplete) {
  SseParser parser;
  std::vector<std::string> events;
  const auto keep = [&](std::string_view data) { events.emplace_back(data); };
  parser.Feed("data: a\ndata: b", keep);
  parser.Reset();
  parser.Feed("data: c\n\n", keep);
  EXPECT_THAT(events, ElementsAre("c"));
}

}  // namespace
}  // namespace tandem
