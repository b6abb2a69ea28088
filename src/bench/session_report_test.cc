#include "bench/session_report.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

namespace tandem {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;

const Clock::time_point kBegin{milliseconds(1000000)};

// A turn of ten tokens that was due at `due_ms`, had its first token after `ttft_ms` and all after `turn_ms`.
RequestRecord MakeTurn(int64_t session, int64_t number, bool is_last, int64_t due_ms, int64_t ttft_ms,
                       int64_t turn_ms) {
  RequestRecord record;
  record.prompt_tokens = 100 * (number + 1);
  record.turn = SessionTurn{.session = session, .number = number, .is_last = is_last};
  record.wanted_output_tokens = record.output_tokens = 10;
  record.start = record.due = kBegin + milliseconds(due_ms);
  record.first_token = record.start + milliseconds(ttft_ms);
  record.last_token = record.start + milliseconds(turn_ms);
  record.ended = true;
  record.possible_hit_tokens = 64 * number;
  record.cached_tokens = 32 * number;
  return record;
}

ordered_json ReportOf(const BenchRun& run) {
  ordered_json report;
  AddSessionFields(run, &report);
  return report;
}

TEST(SessionReport, HasTurnsAndHits) {
  BenchRun run;
  run.duration_s = 30;
  run.records = {MakeTurn(0, 0, false, 0, 100, 200), MakeTurn(0, 1, true, 1000, 10, 400),
                 MakeTurn(1, 0, false, 500, 300, 900), MakeTurn(1, 1, true, 5000, 0, 0)};
  run.records[3].error = "broken";
  const ordered_json report = ReportOf(run);
  const ordered_json& sessions = report["sessions"];
  EXPECT_EQ(sessions["begun"], 2);
  EXPECT_EQ(sessions["finished"], 1);
  EXPECT_EQ(sessions["failed"], 1);
  EXPECT_EQ(sessions["turns_finished"], 3);
  EXPECT_DOUBLE_EQ(sessions["turns_per_minute"], 6);
  EXPECT_DOUBLE_EQ(sessions["turn_ms"]["mean"], 500);
  EXPECT_DOUBLE_EQ(sessions["turn_ms"]["median"], 400);
  EXPECT_DOUBLE_EQ(sessions["first_turn_ttft_ms"]["mean"], 200);
  EXPECT_DOUBLE_EQ(sessions["later_turn_ttft_ms"]["mean"], 10);
  // The turn that failed is in neither.
  EXPECT_EQ(report["prefix_hits"]["prompt_tokens"], 400);
  EXPECT_EQ(report["prefix_hits"]["possible_tokens"], 64);
  EXPECT_EQ(report["prefix_hits"]["tokens"], 32);
  EXPECT_DOUBLE_EQ(report["prefix_hits"]["share_of_possible"], 0.5);
}

TEST(SessionReport, CountsWhatIsDueInTheWindow) {
  BenchRun run;
  run.records = {MakeTurn(0, 0, false, 0, 100, 200), MakeTurn(0, 1, false, 1000, 10, 400),
                 MakeTurn(0, 2, true, 1900, 20, 600)};
  run.window =
      BenchWindow{.begin = kBegin + milliseconds(500), .end = kBegin + milliseconds(2000), .by_due = true};
  const ordered_json report = ReportOf(run);
  EXPECT_EQ(report["sessions"]["begun"], 0);
  EXPECT_EQ(report["sessions"]["finished"], 0) << "it ended later";
  EXPECT_EQ(report["sessions"]["turns_finished"], 1);
  EXPECT_DOUBLE_EQ(report["sessions"]["turns_per_minute"], 40);
  EXPECT_DOUBLE_EQ(report["sessions"]["turn_ms"]["mean"], 500) << "with all their tokens";
  EXPECT_EQ(report["prefix_hits"]["possible_tokens"], 64 + 128);
}

TEST(SessionReport, AWholeTurnCountsFromWhenItIsDue) {
  BenchRun run;
  run.duration_s = 1;
  run.records = {MakeTurn(0, 0, true, 100, 10, 20)};
  // A limit of concurrency had kept it back.
  run.records[0].due -= milliseconds(70);
  EXPECT_DOUBLE_EQ(ReportOf(run)["sessions"]["turn_ms"]["mean"], 90);
  EXPECT_DOUBLE_EQ(ReportOf(run)["sessions"]["first_turn_ttft_ms"]["mean"], 10);
}

TEST(SessionReport, SaysNothingOfWhatThereIsNot) {
  BenchRun run;
  run.duration_s = 1;
  run.records = {MakeTurn(0, 1, true, 0, 1, 2)};
  run.records[0].cached_tokens.reset();
  EXPECT_EQ(ReportOf(run)["prefix_hits"]["possible_tokens"], 64);
  EXPECT_TRUE(ReportOf(run)["prefix_hits"]["share_of_possible"].is_null()) << "the server does not say";
  run.records[0].possible_hit_tokens.reset();
  run.records[0].turn.reset();
  EXPECT_TRUE(ReportOf(run)["prefix_hits"].is_null());
  EXPECT_TRUE(ReportOf(run)["sessions"].is_null());
}

}  // namespace
}  // namespace tandem
