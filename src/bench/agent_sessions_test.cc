#include "bench/agent_sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tandem {
namespace {

using testing::HasSubstr;

SessionStyle MustParseStyle(const std::string& name) {
  const auto style = ParseSessionStyle(name);
  EXPECT_TRUE(style.ok()) << style.error().message;
  return style.value();
}

TEST(AgentSessions, NamesSayTheStyle) {
  EXPECT_TRUE(NamesSessions("agents"));
  EXPECT_TRUE(NamesSessions("chat:turns=3"));
  EXPECT_FALSE(NamesSessions("agents.csv"));
  EXPECT_FALSE(NamesSessions("synthetic:in=1,out=1"));
  const SessionStyle agents = MustParseStyle("agents");
  EXPECT_EQ(agents.num_sessions, 0);
  EXPECT_EQ(agents.system_tokens, 4000);
  EXPECT_EQ(agents.num_turns, 12);
  EXPECT_EQ(agents.pause_s, 5);
  const SessionStyle told =
      MustParseStyle("agents:sessions=7,system=0,turns=2,user=30,out=20,tool=40,pause=0.25,answers=seeded");
  EXPECT_EQ(told.num_sessions, 7);
  EXPECT_EQ(told.system_tokens, 0);
  EXPECT_EQ(told.num_turns, 2);
  EXPECT_EQ(told.user_tokens, 30);
  EXPECT_EQ(told.later_tokens, 40);
  EXPECT_EQ(told.output_tokens, 20);
  EXPECT_EQ(told.pause_s, 0.25);
  EXPECT_TRUE(told.seeded_answers);
  EXPECT_EQ(MustParseStyle("chat:user=70").later_tokens, 70) << "every turn is a user's";
  EXPECT_GT(MustParseStyle("chat").pause_s, agents.pause_s);
}

TEST(AgentSessions, ErrorsNameWhatIsWrong) {
  const auto error = [](const std::string& name) {
    const auto style = ParseSessionStyle(name);
    EXPECT_FALSE(style.ok()) << name;
    if (style.ok()) return std::string();
    EXPECT_EQ(style.error().param, "workload");
    return style.error().message;
  };
  EXPECT_EQ(error("agents:sessions=0"), "'agents:sessions=0': 'sessions=0' has no number from 1 to 1048576");
  EXPECT_THAT(error("agents:out=x"), HasSubstr("'out=x' has no number"));
  EXPECT_THAT(error("agents:turns"), HasSubstr("'turns' has no number"));
  EXPECT_THAT(error("agents:pause=-1"), HasSubstr("'pause=-1' has no number of seconds"));
  EXPECT_THAT(error("agents:out=1,out=2"), HasSubstr("there is a second out"));
  EXPECT_THAT(error("agents:tools=3"), HasSubstr("'tools=3' is none of sessions=N"));
  EXPECT_THAT(error("chat:tool=3"), HasSubstr("'tool=3' is none of"));
  EXPECT_THAT(error("chat:answers=none"), HasSubstr("'answers=none' is none of"));
}

TEST(AgentSessions, EveryTurnSendsTheHistoryAndSomethingNew) {
  const SessionStyle style = MustParseStyle("agents:system=500,turns=40,user=300,out=150,tool=400,pause=5");
  const Workload workload = DrawSessions("agents", style, 50, 3);
  ASSERT_EQ(workload.requests.size(), 50U * 40U);
  int64_t history = 0;
  double sum_of_pauses_s = 0;
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const WorkloadRequest& request = workload.requests[i];
    const SessionTurn& turn = *request.turn;
    EXPECT_EQ(turn.session, static_cast<int64_t>(i / 40));
    EXPECT_EQ(turn.number, static_cast<int64_t>(i % 40));
    EXPECT_EQ(turn.is_last, i % 40 == 39);
    const bool is_first = turn.number == 0;
    EXPECT_EQ(request.prompt_tokens, (is_first ? 500 : history) + turn.new_tokens);
    EXPECT_LE(std::abs(turn.new_tokens - (is_first ? 300 : 400)), is_first ? 30 : 40);
    EXPECT_LE(std::abs(request.output_tokens - 150), 15);
    history = request.prompt_tokens + request.output_tokens;
    if (is_first) {
      EXPECT_EQ(turn.pause_s, 0);
    }
    sum_of_pauses_s += turn.pause_s;
  }
  EXPECT_NEAR(sum_of_pauses_s / (50 * 39), 5, 0.4);
}

TEST(AgentSessions, AreAFunctionOfTheSeed) {
  const auto draw = [](const char* name, int64_t count, uint64_t seed) {
    std::vector<std::pair<int64_t, double>> turns;
    for (const WorkloadRequest& request : DrawSessions(name, MustParseStyle(name), count, seed).requests)
      turns.emplace_back(request.prompt_tokens, request.turn->pause_s);
    return turns;
  };
  const auto turns = draw("agents", 5, 1);
  EXPECT_EQ(turns, draw("agents", 5, 1));
  EXPECT_NE(turns, draw("agents", 5, 2));
  auto more = draw("agents", 9, 1);
  more.resize(turns.size());
  EXPECT_EQ(turns, more);
  // Longer pauses, and nothing else.
  const auto slower = draw("agents:pause=50", 5, 1);
  for (size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(slower[i].first, turns[i].first);
    EXPECT_NEAR(slower[i].second, 10 * turns[i].second, 1e-9);
  }
}

TEST(AgentSessions, ASessionThatDoesNotFitIsLeftOutWhole) {
  Workload workload =
      DrawSessions("agents", MustParseStyle("agents:system=100,turns=3,user=50,tool=50,out=50"), 40, 1);
  std::vector<int64_t> lengths;
  for (const WorkloadRequest& request : workload.requests) {
    if (request.turn->is_last) lengths.push_back(request.prompt_tokens + request.output_tokens);
  }
  std::sort(lengths.begin(), lengths.end());
  DropLongSessions(lengths[24], &workload);
  const auto num_left =
      static_cast<int64_t>(std::upper_bound(lengths.begin(), lengths.end(), lengths[24]) - lengths.begin());
  EXPECT_GE(num_left, 25);
  EXPECT_EQ(workload.num_dropped, 40 - num_left);
  ASSERT_EQ(std::ssize(workload.requests), 3 * num_left);
  for (size_t i = 0; i < workload.requests.size(); ++i)
    EXPECT_EQ(workload.requests[i].turn->number, static_cast<int64_t>(i % 3));
  DropLongSessions(10, &workload);
  EXPECT_TRUE(workload.requests.empty());
}

}  // namespace
}  // namespace tandem
