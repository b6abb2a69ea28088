#include "tracing/otlp_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tracing/collector_testing.h"
#include "tracing/tracer.h"

namespace tandem {
namespace {

using Answer = TestCollector::Answer;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::vector<Span> MakeSpans(size_t count) {
  std::vector<Span> spans(count);
  for (Span& span : spans) {
    span.trace_id = NewTraceId();
    span.span_id = NewSpanId();
    span.name = "test";
  }
  return spans;
}

std::unique_ptr<OtlpExporter> StartExporter(const OtlpOptions& options) {
  auto exporter = OtlpExporter::Start(options);
  EXPECT_TRUE(exporter.ok()) << exporter.error().message;
  return std::move(exporter).value();
}

size_t NumSpans(const TestCollector::Received& received) {
  return nlohmann::json::parse(received.body)["resourceSpans"][0]["scopeSpans"][0]["spans"].size();
}

// An address where nobody listens.
OtlpOptions NobodysOptions() {
  return TestCollector().Options();
}

void WaitUntil(const std::function<bool()>& holds) {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (!holds() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(holds());
}

TEST(OtlpExporter, SpansArePosted) {
  TestCollector collector;
  OtlpOptions options = collector.Options();
  options.headers = {{"api-key", "secret"}};
  const auto exporter = StartExporter(options);
  exporter->Export(MakeSpans(3));
  const auto received = collector.WaitFor(1);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].target, "/v1/traces");
  EXPECT_EQ(received[0].headers.at("Content-Type"), "application/json");
  EXPECT_EQ(received[0].headers.at("api-key"), "secret");
  EXPECT_EQ(NumSpans(received[0]), 3U);
  WaitUntil([&] { return exporter->counts().sent == 3; });
}

TEST(OtlpExporter, AConnectionIsKept) {
  TestCollector collector({{}, {.closes = true}});
  const auto exporter = StartExporter(collector.Options());
  for (int64_t i = 1; i <= 3; ++i) {
    exporter->Export(MakeSpans(1));
    WaitUntil([&] { return exporter->counts().sent == i; });
  }
  const auto received = collector.received();
  ASSERT_EQ(received.size(), 3U);
  EXPECT_EQ(received[1].connection, received[0].connection);
  EXPECT_GT(received[2].connection, received[1].connection) << "the collector had closed it";
}

TEST(OtlpExporter, ManySpansAreBatchesAndFewWait) {
  TestCollector collector;
  OtlpOptions options = collector.Options();
  options.max_batch_spans = 10;
  options.delay = std::chrono::hours(1);
  const auto exporter = StartExporter(options);
  exporter->Export(MakeSpans(4));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_TRUE(collector.received().empty());
  exporter->Export(MakeSpans(19));
  const auto received = collector.WaitFor(2);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(NumSpans(received[0]), 10U);
  EXPECT_EQ(NumSpans(received[1]), 10U);
}

TEST(OtlpExporter, WhatTheQueueHasNoRoomForIsDroppedAndCounted) {
  TestCollector collector({Answer{.is_none = true}});
  OtlpOptions options = collector.Options();
  options.max_queued_spans = 10;
  options.max_batch_spans = 5;
  options.flush_time = milliseconds(0);
  const auto exporter = StartExporter(options);
  exporter->Export(MakeSpans(5));
  collector.WaitFor(1);  // on their way: they do not wait any more
  exporter->Export(MakeSpans(6));
  EXPECT_EQ(exporter->counts().queue_full, 0);
  const auto before = Clock::now();
  exporter->Export(MakeSpans(5));
  EXPECT_EQ(exporter->counts().queue_full, 5) << "all of them";
  exporter->Export(MakeSpans(4));
  EXPECT_EQ(exporter->counts().queue_full, 5);
  exporter->Export(MakeSpans(1));
  EXPECT_EQ(exporter->counts().queue_full, 6);
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(5)) << "nobody waits for the collector";
}

TEST(OtlpExporter, WhoIsBusyIsAskedAgain) {
  TestCollector collector(
      {{.status = 503}, {.status = 429, .closes = true}, {.status = 504}, {.status = 502}});
  const auto exporter = StartExporter(collector.Options());
  exporter->Export(MakeSpans(2));
  const auto received = collector.WaitFor(5);
  ASSERT_EQ(received.size(), 5U);
  for (const auto& each : received) EXPECT_EQ(each.body, received[0].body);
  WaitUntil([&] { return exporter->counts().sent == 2; });
  // At least half of 20, 40, 80 and 100 ms.
  EXPECT_GE(received[4].time - received[0].time, milliseconds(120));
  EXPECT_EQ(exporter->counts().refused + exporter->counts().unreachable, 0);
}

TEST(OtlpExporter, ABusyReceiverSaysHowLong) {
  TestCollector collector({Answer{.status = 503, .retry_after = "1"}});
  const auto exporter = StartExporter(collector.Options());
  exporter->Export(MakeSpans(1));
  const auto received = collector.WaitFor(2);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_GE(received[1].time - received[0].time, milliseconds(990));
}

TEST(OtlpExporter, WhatIsRefusedIsNotSentAgain) {
  TestCollector collector({{.status = 400, .body = "no"},
                           {.body = R"({"partialSuccess": {"rejectedSpans": "2", "errorMessage": "old"}})"}});
  const auto exporter = StartExporter(collector.Options());
  exporter->Export(MakeSpans(3));
  WaitUntil([&] { return exporter->counts().refused == 3; });
  exporter->Export(MakeSpans(5));
  WaitUntil([&] { return exporter->counts().sent == 3; });
  EXPECT_EQ(exporter->counts().refused, 5);
  EXPECT_EQ(collector.received().size(), 2U);
}

TEST(OtlpExporter, AReceiverMayComeLater) {
  const OtlpOptions nobody = NobodysOptions();
  auto exporter = StartExporter(nobody);
  exporter->Export(MakeSpans(1));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(exporter->counts().sent, 0);
  EXPECT_EQ(exporter->counts().unreachable, 0) << "it is still tried";
  const auto before = Clock::now();
  exporter.reset();
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(3)) << "who is not there is not waited for";
}

TEST(OtlpExporter, ABatchIsGivenUpInTheEnd) {
  OtlpOptions options = NobodysOptions();
  options.max_retry_time = milliseconds(100);
  const auto exporter = StartExporter(options);
  exporter->Export(MakeSpans(2));
  WaitUntil([&] { return exporter->counts().unreachable == 2; });
}

TEST(OtlpExporter, ARequestHasItsTime) {
  TestCollector collector({Answer{.is_none = true}});
  OtlpOptions options = collector.Options();
  options.timeout = milliseconds(100);
  const auto exporter = StartExporter(options);
  exporter->Export(MakeSpans(2));
  WaitUntil([&] { return exporter->counts().sent == 2; });
  EXPECT_EQ(collector.received().size(), 2U);
}

TEST(OtlpExporter, TheEndSendsWhatIsLeft) {
  TestCollector collector({{}, {.status = 503}});
  OtlpOptions options = collector.Options();
  options.delay = std::chrono::hours(1);
  options.max_batch_spans = 10;
  auto exporter = StartExporter(options);
  exporter->Export(MakeSpans(25));
  exporter.reset();
  std::multiset<size_t> sizes;
  for (const auto& each : collector.received()) sizes.insert(NumSpans(each));
  EXPECT_THAT(sizes, testing::ElementsAre(5, 10, 10, 10)) << "the one that met a busy receiver twice";
}

TEST(OtlpExporter, TheEndHasADeadline) {
  TestCollector collector({Answer{.is_none = true}});
  OtlpOptions options = collector.Options();
  options.flush_time = milliseconds(100);
  auto exporter = StartExporter(options);
  exporter->Export(MakeSpans(1));
  collector.WaitFor(1);
  const auto before = Clock::now();
  exporter.reset();
  EXPECT_GE(Clock::now() - before, milliseconds(90));
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(3));
}

TEST(Tracer, GoesOnWithTheTraceOfARequest) {
  TestCollector collector;
  const auto tracer =
      Tracer::Start({.otlp = collector.Options(), .sampler = *Sampler::Make("parentbased_always_on", "")});
  ASSERT_TRUE(tracer.ok());
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  const std::string sampled = "00-" + trace + "-b7ad6b7169203331-01";
  const auto below = (*tracer)->Begin({sampled}, {"a=1", "b=2"});
  ASSERT_TRUE(below && below->parent_id);
  EXPECT_EQ(HexOf(below->trace_id), trace);
  EXPECT_EQ(HexOf(*below->parent_id), "b7ad6b7169203331");
  EXPECT_EQ(below->trace_state, "a=1,b=2");
  EXPECT_FALSE((*tracer)->Begin({"00-" + trace + "-b7ad6b7169203331-00"}, {}))
      << "its parent is not recorded";
  for (const std::vector<std::string_view>& none :
       {std::vector<std::string_view>{}, {"nonsense"}, {sampled, sampled}}) {
    const auto own = (*tracer)->Begin(none, {"a=1"});
    ASSERT_TRUE(own);
    EXPECT_FALSE(own->parent_id);
    EXPECT_NE(HexOf(own->trace_id), trace);
    EXPECT_EQ(own->trace_state, "") << "of no trace";
  }
}

}  // namespace
}  // namespace tandem
