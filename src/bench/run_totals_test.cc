#include "bench/run_totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::DoubleNear;
using testing::Pointwise;

const Clock::time_point kStart = Clock::now();

struct Token {
  int64_t ms = 0;
  bool in_cpu_tier = false;
};

RequestRecord Record(int64_t prompt_tokens, int64_t wanted, const std::vector<Token>& tokens) {
  RequestRecorder recorder({{.prompt_tokens = prompt_tokens, .output_tokens = wanted, .arrival_s = {}}});
  recorder.Start(0, kStart);
  for (const Token& token : tokens)
    recorder.AddTokens(0, 1, token.in_cpu_tier, kStart + milliseconds(token.ms));
  if (static_cast<int64_t>(tokens.size()) == wanted) {
    recorder.End(0, "");
  } else {
    recorder.Cancel(0);
  }
  return recorder.TakeRecords().front();
}

auto Near(const std::vector<double>& values) {
  return Pointwise(DoubleNear(1e-3), values);
}

// Done before the window; done in it; still at it behind it; never at it.
BenchRun MakeAddedRun() {
  BenchRun run;
  run.records = {Record(10, 2, {{100}, {200}}), Record(20, 4, {{900}, {1100, true}, {1300, true}, {1350}}),
                 Record(30, 9, {{1500, true}, {1900, true}, {2100, true}}), Record(40, 9, {})};
  run.duration_s = 2.1;
  run.window = BenchWindow{.begin = kStart + milliseconds(1000), .end = kStart + milliseconds(2000)};
  return run;
}

TEST(RunTotals, WhatArrivesInTheWindowCounts) {
  const RunTotals totals = AddUpRun(MakeAddedRun());
  EXPECT_EQ(totals.completed, 1);
  EXPECT_EQ(totals.failed, 0);
  EXPECT_EQ(totals.unfinished, 2);
  EXPECT_EQ(totals.input_tokens, 30) << "of the request whose first token came in it";
  EXPECT_EQ(totals.output_tokens, 5);
  EXPECT_THAT(totals.ttft_ms, Near({1500}));
  EXPECT_THAT(totals.itl_ms, Near({200, 200, 50, 400}));
  EXPECT_THAT(totals.e2el_ms, Near({1350}));
  EXPECT_THAT(totals.tpot_ms, Near({150}));
}

TEST(RunTotals, EachTierHasItsTokensAndRequests) {
  const RunTotals totals = AddUpRun(MakeAddedRun());
  EXPECT_EQ(totals.cpu_tier.output_tokens, 4);
  EXPECT_THAT(totals.cpu_tier.itl_ms, Near({200, 200, 400}));
  EXPECT_EQ(totals.cpu_tier.requests, 1) << "two of the three tokens behind the first";
  EXPECT_THAT(totals.cpu_tier.tpot_ms, Near({150}));
  EXPECT_EQ(totals.gpu_tier.output_tokens, 1);
  EXPECT_THAT(totals.gpu_tier.itl_ms, Near({50}));
  EXPECT_EQ(totals.gpu_tier.requests, 0);
}

TEST(RunTotals, WithoutAWindowCompletedRequestsCount) {
  BenchRun run = MakeAddedRun();
  run.window.reset();
  const RunTotals totals = AddUpRun(run);
  EXPECT_EQ(totals.completed, 2);
  EXPECT_EQ(totals.input_tokens, 30);
  EXPECT_EQ(totals.output_tokens, 6);
  EXPECT_EQ(totals.gpu_tier.requests, 1);
  EXPECT_EQ(totals.cpu_tier.requests, 1);
  EXPECT_EQ(CountedRequests(run).size(), 2U);
}

TEST(RunTotals, ARequestAmidItsOutputHasNoBeginning) {
  BenchRun run = MakeAddedRun();
  run.window.reset();
  run.records[1].begun = true;
  run.records[1].made_tokens = 50;
  const RunTotals totals = AddUpRun(run);
  EXPECT_EQ(totals.input_tokens, 10);
  EXPECT_THAT(totals.ttft_ms, Near({100}));
  EXPECT_THAT(totals.e2el_ms, Near({200}));
  EXPECT_THAT(totals.tpot_ms, Near({100, 150}));
  // Its lengths are those of the whole request.
  EXPECT_EQ(CountedRequests(run)[1].prompt_tokens, 20);
  EXPECT_EQ(CountedRequests(run)[1].output_tokens, 54);
}

TEST(RunTotals, AWindowByDueTimeCountsWholeRequests) {
  BenchRun run = MakeAddedRun();
  run.window =
      BenchWindow{.begin = kStart - milliseconds(10), .end = kStart + milliseconds(1000), .by_due = true};
  // Due later; due in the window and not accepted.
  run.records.push_back(Record(50, 2, {{1050}, {1060}}));
  run.records.back().start = kStart + milliseconds(1000);
  RequestRecord rejected = Record(60, 3, {});
  rejected.cancelled = false;
  rejected.rejected = true;
  rejected.error = "full";
  run.records.push_back(rejected);
  const RunTotals totals = AddUpRun(run);
  EXPECT_EQ(totals.counted, 5) << "all but the one due at its end";
  EXPECT_EQ(totals.completed, 2);
  EXPECT_EQ(totals.ended, 1) << "the other's last token came behind the window";
  EXPECT_EQ(totals.rejected, 1);
  EXPECT_EQ(totals.failed, 0);
  EXPECT_EQ(totals.unfinished, 2);
  // Throughput: what arrived in it, of the first request and the second.
  EXPECT_EQ(totals.output_tokens, 3);
  EXPECT_EQ(totals.input_tokens, 30);
  // Latencies: all tokens of the completed requests that were due in it.
  EXPECT_THAT(totals.ttft_ms, Near({100, 900}));
  EXPECT_THAT(totals.itl_ms, Near({100, 200, 200, 50}));
  EXPECT_THAT(totals.e2el_ms, Near({200, 1350}));
  EXPECT_EQ(totals.cpu_tier.output_tokens, 0);
  EXPECT_THAT(totals.cpu_tier.itl_ms, Near({200, 200}));
  EXPECT_EQ(totals.send_delay_ms.size(), 5U);
}

TEST(RunTotals, AllRequestsMakeTheBoundOfAWindowAmidThem) {
  const BenchRun run = MakeAddedRun();
  EXPECT_EQ(CountedRequests(run).size(), run.records.size());
}

TEST(RunTotals, RequestsWithAPartInAWindowByDueTimeMakeItsBound) {
  BenchRun run = MakeAddedRun();
  run.window->by_due = true;
  const std::vector<WorkloadRequest> requests = CountedRequests(run);
  ASSERT_EQ(requests.size(), 2U);
  ASSERT_GT(run.records.size(), 2U);
  EXPECT_EQ(requests[0].prompt_tokens, 20);
  EXPECT_EQ(requests[1].prompt_tokens, 30);
  EXPECT_EQ(requests[1].output_tokens, 9);
}

}  // namespace
}  // namespace tandem
