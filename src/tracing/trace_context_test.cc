#include "tracing/trace_context.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem {
namespace {

constexpr const char* kTrace = "0af7651916cd43dd8448eb211c80319c";
constexpr const char* kSpan = "b7ad6b7169203331";

std::string Header(std::string_view version, std::string_view trace, std::string_view span,
                   std::string_view rest) {
  std::string text;
  for (const std::string_view part : {version, trace, span, rest}) {
    if (!text.empty()) text += '-';
    text += part;
  }
  return text;
}

TEST(Traceparent, NamesTraceSpanAndFlag) {
  const auto sampled = ParseTraceparent(Header("00", kTrace, kSpan, "01"));
  ASSERT_TRUE(sampled);
  EXPECT_EQ(HexOf(sampled->trace_id), kTrace);
  EXPECT_EQ(HexOf(sampled->span_id), kSpan);
  EXPECT_TRUE(sampled->sampled);
  EXPECT_FALSE(ParseTraceparent(Header("00", kTrace, kSpan, "00"))->sampled);
}

TEST(Traceparent, FlagsThatAreUnknownAreNoErrors) {
  EXPECT_TRUE(ParseTraceparent(Header("00", kTrace, kSpan, "ff"))->sampled);
  EXPECT_TRUE(ParseTraceparent(Header("00", kTrace, kSpan, "03"))->sampled);
  EXPECT_FALSE(ParseTraceparent(Header("00", kTrace, kSpan, "fe"))->sampled);
}

TEST(Traceparent, LaterVersionsAreReadAsFarAsTheFirst) {
  EXPECT_TRUE(ParseTraceparent(Header("cc", kTrace, kSpan, "01")));
  EXPECT_TRUE(ParseTraceparent(Header("cc", kTrace, kSpan, "01-what-the-future-is-like")));
  EXPECT_TRUE(ParseTraceparent(Header("cc", kTrace, kSpan, "01-"))->sampled);
  EXPECT_FALSE(ParseTraceparent(Header("cc", kTrace, kSpan, "01.what")));
}

TEST(Traceparent, IsNothingIfNotValid) {
  const std::string good = Header("00", kTrace, kSpan, "01");
  for (const std::string& bad : {
           std::string(),
           good.substr(0, good.size() - 1),
           good + "0",
           good + "-",                                       // version 00 ends there
           good + "-what",                                   //
           Header("ff", kTrace, kSpan, "01"),                // no version
           Header("0", kTrace, kSpan, "001"),                //
           Header(".0", kTrace, kSpan, "01"),                //
           Header("00", std::string(32, '0'), kSpan, "01"),  // none of both may be zero
           Header("00", kTrace, std::string(16, '0'), "01"),
           Header("00", "0AF7651916CD43DD8448EB211C80319C", kSpan, "01"),  // capitals
           Header("00", kTrace, "B7AD6B7169203331", "01"),
           Header("00", "0af7651916cd43dd8448eb211c80319", "b7ad6b71692033311", "01"),
           Header("00", "0af7651916cd43dd8448eb211c80319.", kSpan, "01"),
           Header("00", kTrace, "b7ad6b716920333.", "01"),
           Header("00", kTrace, kSpan, ".1"),
           Header("00", kTrace, kSpan, "0A"),
           std::string("00_") + kTrace + "-" + kSpan + "-01",
       }) {
    EXPECT_FALSE(ParseTraceparent(bad)) << bad;
  }
}

TEST(Tracestate, HeadersAreJoinedInOrder) {
  EXPECT_EQ(JoinTracestate({}), "");
  EXPECT_EQ(JoinTracestate({"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"}),
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
  EXPECT_EQ(JoinTracestate({"foo=1", " bar=2 , \t baz=3"}), "foo=1,bar=2,baz=3");
  EXPECT_EQ(JoinTracestate({"foo=1,,bar=2", ""}), "foo=1,bar=2") << "members may be empty";
  EXPECT_EQ(JoinTracestate({"fw529a3039@dt=FfSw-j_*/"}), "fw529a3039@dt=FfSw-j_*/");
}

TEST(Tracestate, IsNothingIfNotValid) {
  for (const char* bad :
       {"foo", "=1", "Foo=1", "foo =1", "foo=", "foo=1=2", "foo=1,foo=2", "foo=\x01", "f.o=1"}) {
    EXPECT_EQ(JoinTracestate({"good=1", bad}), "") << bad;
  }
  EXPECT_EQ(JoinTracestate({std::string(257, 'k') + "=1"}), "");
  EXPECT_EQ(JoinTracestate({"k=" + std::string(257, 'v')}), "");
  std::string many = "k0=1";
  for (int i = 1; i < 32; ++i) many += ",k" + std::to_string(i) + "=1";
  EXPECT_EQ(JoinTracestate({many}), many);
  EXPECT_EQ(JoinTracestate({many, "one=more"}), "");
}

TEST(TraceIds, AreDifferentAndNeverZero) {
  std::set<TraceId> traces;
  std::set<SpanId> spans;
  for (int i = 0; i < 1000; ++i) {
    traces.insert(NewTraceId());
    spans.insert(NewSpanId());
  }
  EXPECT_EQ(traces.size(), 1000U);
  EXPECT_EQ(spans.size(), 1000U);
  EXPECT_EQ(traces.count(TraceId{}) + spans.count(SpanId{}), 0U);
}

}  // namespace
}  // namespace tandem
