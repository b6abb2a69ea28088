#include "tracing/otlp_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using nlohmann::json;

Span ExampleSpan() {
  Span span;
  for (size_t i = 0; i < span.trace_id.size(); ++i) span.trace_id[i] = static_cast<uint8_t>(0xa0 + i);
  for (size_t i = 0; i < span.span_id.size(); ++i) span.span_id[i] = static_cast<uint8_t>(i + 1);
  span.name = "chat model";
  span.kind = Span::Kind::kServer;
  span.start_ns = 1'700'000'000'123'456'789;
  span.end_ns = 1'700'000'001'000'000'000;
  return span;
}

// The only span of a request's JSON.
json SpanOf(const Span& span) {
  const json request = json::parse(OtlpTraceRequest({}, "1.2", {span}));
  return request["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
}

TEST(OtlpJson, IsThatOfTheSpecification) {
  Span span = ExampleSpan();
  span.parent_id = {8, 7, 6, 5, 4, 3, 2, 1};
  span.parent_is_remote = true;
  span.trace_state = "a=1";
  span.attributes = {{"text", "gpu"},
                     {"count", int64_t{1} << 60},
                     {"ratio", 0.5},
                     {"flag", true},
                     {"list", std::vector<std::string>{"gpu", "cpu"}},
                     {"empty", std::vector<std::string>{}}};
  span.events = {{.name = "moved", .time_ns = 1'700'000'000'500'000'000, .attributes = {{"tier", "cpu"}}}};
  const json request = json::parse(OtlpTraceRequest({{"service.name", "tandem"}}, "1.2", {span, span}));
  const json expected = json::parse(R"({
    "traceId": "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf", "spanId": "0102030405060708", "traceState": "a=1",
    "parentSpanId": "0807060504030201", "flags": 769, "name": "chat model", "kind": 2,
    "startTimeUnixNano": "1700000000123456789", "endTimeUnixNano": "1700000001000000000",
    "attributes": [
      {"key": "text", "value": {"stringValue": "gpu"}},
      {"key": "count", "value": {"intValue": "1152921504606846976"}},
      {"key": "ratio", "value": {"doubleValue": 0.5}},
      {"key": "flag", "value": {"boolValue": true}},
      {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "gpu"}, {"stringValue": "cpu"}]}}},
      {"key": "empty", "value": {"arrayValue": {"values": []}}}],
    "events": [{"timeUnixNano": "1700000000500000000", "name": "moved",
                "attributes": [{"key": "tier", "value": {"stringValue": "cpu"}}]}],
    "status": {}})");
  ASSERT_EQ(request["resourceSpans"].size(), 1U);
  const json& of_resource = request["resourceSpans"][0];
  EXPECT_EQ(of_resource["resource"]["attributes"],
            json::parse(R"([{"key": "service.name", "value": {"stringValue": "tandem"}}])"));
  ASSERT_EQ(of_resource["scopeSpans"].size(), 1U);
  EXPECT_EQ(of_resource["scopeSpans"][0]["scope"], json::parse(R"({"name": "tandem", "version": "1.2"})"));
  EXPECT_EQ(of_resource["scopeSpans"][0]["spans"], json::array({expected, expected}));
}

TEST(OtlpJson, WhatASpanHasNotIsLeftOut) {
  const json span = SpanOf(ExampleSpan());
  for (const char* name : {"parentSpanId", "traceState", "events"}) EXPECT_FALSE(span.contains(name)) << name;
  EXPECT_EQ(span["flags"], 0x101);
}

TEST(OtlpJson, AFailureHasItsMessage) {
  Span span = ExampleSpan();
  span.kind = Span::Kind::kInternal;
  span.failed = true;
  span.error = "too \"long\"\n";
  EXPECT_EQ(SpanOf(span)["status"], (json{{"code", 2}, {"message", "too \"long\"\n"}}));
  EXPECT_EQ(SpanOf(span)["kind"], 1);
}

TEST(OtlpJson, BytesThatAreNoTextAreReplaced) {
  Span span = ExampleSpan();
  span.attributes = {{"bad", std::string("a\xff\xc3")}};
  EXPECT_EQ(SpanOf(span)["attributes"][0]["value"]["stringValue"], "a\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(OtlpJson, AnAnswerSaysHowManyWereRejected) {
  std::string message;
  EXPECT_EQ(
      OtlpRejectedSpans(R"({"partialSuccess": {"rejectedSpans": "3", "errorMessage": "old"}})", &message), 3);
  EXPECT_EQ(message, "old");
  EXPECT_EQ(OtlpRejectedSpans(R"({"partialSuccess": {"rejectedSpans": 4}})", &message), 4);
  for (const char* none :
       {"", "{}", "[]", "no JSON", R"({"partialSuccess": {}})", R"({"partialSuccess": []})",
        R"({"partialSuccess": {"rejectedSpans": null, "errorMessage": 1}})"}) {
    EXPECT_EQ(OtlpRejectedSpans(none, &message), 0) << none;
  }
}

}  // namespace
}  // namespace tandem
