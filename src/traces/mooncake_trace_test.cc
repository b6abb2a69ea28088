#include "traces/mooncake_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MooncakeTrace, ReadsARequestALine) {
  const auto trace = ParseMooncakeTrace(
      "{\"timestamp\": 500, \"input_length\": 1025, \"output_length\": 52, \"hash_ids\": [46, 47, 2353]}\r\n"
      "\n"
      "{\"hash_ids\": [46], \"timestamp\": 3052.5, \"input_length\": 600, \"output_length\": 1, \"more\": "
      "{}}",
      "t.jsonl");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->size(), 2U);
  EXPECT_DOUBLE_EQ((*trace)[0].arrival_s, 0.5);
  EXPECT_EQ((*trace)[0].prompt_tokens, 1025);
  EXPECT_EQ((*trace)[0].output_tokens, 52);
  EXPECT_THAT((*trace)[0].block_ids, ElementsAre(46, 47, 2353));
  EXPECT_DOUBLE_EQ((*trace)[1].arrival_s, 3.0525);
  EXPECT_THAT((*trace)[1].block_ids, ElementsAre(46)) << "none of the block that is not full";
}

TEST(MooncakeTrace, SaysWhatIsWrongAndWhere) {
  const auto error = [](const std::string& second_line) {
    const auto trace =
        ParseMooncakeTrace(R"({"timestamp": 5, "input_length": 3, "output_length": 1, "hash_ids": [1]})"
                           "\n" +
                               second_line,
                           "t.jsonl");
    EXPECT_FALSE(trace.ok()) << second_line;
    return trace.ok() ? "" : trace.error().message;
  };
  EXPECT_EQ(error("[1]"), "t.jsonl, line 2: it is no JSON object");
  EXPECT_EQ(error("{\"timestamp\""), "t.jsonl, line 2: it is no JSON object");
  EXPECT_EQ(error(R"({"timestamp": "5"})"), "t.jsonl, line 2: timestamp is no number of milliseconds");
  EXPECT_EQ(error(R"({"timestamp": 4})"), "t.jsonl, line 2: timestamp is before that of the line above");
  EXPECT_THAT(error(R"({"timestamp": 5, "input_length": 0})"),
              HasSubstr("input_length is no number of tokens"));
  EXPECT_THAT(error(R"({"timestamp": 5, "input_length": 3, "output_length": 1.5})"),
              HasSubstr("output_length is no number of tokens"));
  EXPECT_THAT(error(R"({"timestamp": 5, "input_length": 3, "output_length": 1})"),
              HasSubstr("hash_ids is no list"));
  EXPECT_THAT(error(R"({"timestamp": 5, "input_length": 3, "output_length": 1, "hash_ids": [-1]})"),
              HasSubstr("no integer of at least 0"));
  EXPECT_THAT(error(R"({"timestamp": 5, "input_length": 1025, "output_length": 1, "hash_ids": [1]})"),
              HasSubstr("hash_ids has 1 ids where 1025 tokens are 3 blocks of 512"));
  EXPECT_THAT(error(R"({"timestamp": 5, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]})"),
              HasSubstr("2 ids where 512 tokens are 1 blocks"));
  EXPECT_THAT(ParseMooncakeTrace("\n", "t.jsonl").error().message, HasSubstr("no requests"));
}

}  // namespace
}  // namespace tandem
