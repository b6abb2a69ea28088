#include "traces/trace_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(TraceCsv, ColumnsGoByName) {
  const auto requests =
      ParseTraceCsv("\xef\xbb\xbfmodel, output_tokens ,prompt_tokens\r\nx,2,30\r\n\r\ny, 4 ,50", "t");
  ASSERT_TRUE(requests.ok()) << requests.error().message;
  ASSERT_EQ(requests->size(), 2U);
  EXPECT_EQ((*requests)[1].prompt_tokens, 50);
  EXPECT_EQ((*requests)[1].output_tokens, 4);
  EXPECT_FALSE((*requests)[1].arrival_s.has_value());
}

TEST(TraceCsv, ErrorsNameTheLine) {
  const auto error = [](std::string_view text) {
    const auto requests = ParseTraceCsv(text, "t.csv");
    EXPECT_FALSE(requests.ok()) << text;
    return requests.ok() ? "" : requests.error().message;
  };
  EXPECT_THAT(error(""), HasSubstr("no requests"));
  EXPECT_THAT(error("prompt_tokens,output_tokens\n"), HasSubstr("no requests"));
  EXPECT_THAT(error("1,2\n"), HasSubstr("t.csv, line 1: the first line names no column prompt_tokens"));
  EXPECT_THAT(error("prompt_tokens\n1\n"), HasSubstr("no column output_tokens"));
  EXPECT_THAT(error("prompt_tokens,prompt_tokens,output_tokens\n"), HasSubstr("two columns prompt_tokens"));
  EXPECT_THAT(error("prompt_tokens,output_tokens\n5,0\n"), HasSubstr("line 2: output_tokens is '0'"));
  EXPECT_THAT(error("prompt_tokens,output_tokens\n-5,1\n"), HasSubstr("prompt_tokens is '-5'"));
  EXPECT_THAT(error("prompt_tokens,output_tokens\n99999999999999999999,1\n"),
              HasSubstr("is no number of tokens"));
  EXPECT_THAT(error("arrival_s,prompt_tokens,output_tokens\nnan,1,1\n"), HasSubstr("arrival_s is 'nan'"));
  EXPECT_THAT(error("arrival_s,prompt_tokens,output_tokens\n2,1,1\n1,1,1\n"),
              HasSubstr("line 3: arrival_s 1 is before"));
}

}  // namespace
}  // namespace tandem
