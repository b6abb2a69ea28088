#include "bench/session_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/agent_sessions.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kPromptVocabSize = 100;
// No token of a prompt: answers can be told from what is drawn.
constexpr int32_t kFirstAnswerToken = 1000;

// Answers at once, but for the requests that are to end otherwise.
class AnsweringTarget final : public RequestTarget {
 public:
  AnsweringTarget(boost::asio::io_context* io, RequestRecorder* recorder, const Workload& workload)
      : io_(io), recorder_(recorder), workload_(workload) {}

  void SetPrompt(int64_t index, std::vector<int32_t> tokens) override { prompts[index] = std::move(tokens); }
  void Send(int64_t index) override {
    sent.push_back(index);
    EXPECT_EQ(std::ssize(prompts.at(index)), workload_.requests[static_cast<size_t>(index)].prompt_tokens);
    boost::asio::post(*io_, [this, index] { End(index); });
  }
  void Cancel(int64_t index) override {
    boost::asio::post(*io_, [this, index] { loop->OnEnd(index, {RequestEnd::Kind::kCancelled, ""}); });
  }
  void Close() override {}

  std::vector<int32_t> AnswerOf(int64_t index) const {
    std::vector<int32_t> answer(
        static_cast<size_t>(workload_.requests[static_cast<size_t>(index)].output_tokens));
    std::iota(answer.begin(), answer.end(), kFirstAnswerToken + static_cast<int32_t>(index));
    return answer;
  }

  SessionLoop* loop = nullptr;
  std::map<int64_t, RequestEnd> other_ends;  // by request
  int64_t never_ends = -1;
  int64_t loses_ids = -1;
  std::map<int64_t, std::vector<int32_t>> prompts;
  std::vector<int64_t> sent;

 private:
  void End(int64_t index) {
    if (index == never_ends) return;
    if (const auto other = other_ends.find(index); other != other_ends.end()) {
      return loop->OnEnd(index, other->second);
    }
    RequestEnd end{.kind = RequestEnd::Kind::kDone, .reason = "", .output_tokens = AnswerOf(index)};
    end.cached_tokens = index;
    recorder_->AddTokens(index, std::ssize(end.output_tokens), false, Clock::now());
    if (index == loses_ids) end.output_tokens.pop_back();
    loop->OnEnd(index, std::move(end));
  }

  boost::asio::io_context* const io_;
  RequestRecorder* const recorder_;
  const Workload& workload_;
};

Workload DrawnSessions(int64_t count, const std::string& name) {
  return DrawSessions(name, ParseSessionStyle(name).value(), count, 1);
}

// One run of sessions.
struct SessionRun {
  SessionRun(const Workload& sessions, std::vector<double> start_times_s,
             const RequestLoopOptions& options = {})
      : workload(sessions),
        recorder(workload.requests),
        histories(workload, 5, kPromptVocabSize),
        loop(&io, &recorder, workload.requests, std::move(start_times_s), &histories, options),
        target(&io, &recorder, workload) {
    target.loop = &loop;
    for (size_t i = 0; i < workload.requests.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      if (workload.requests[i].turn->number == 0) target.SetPrompt(index, histories.Prompt(index));
    }
  }

  std::vector<RequestRecord> Go() {
    loop.Run(&target, std::chrono::milliseconds(50), [](const RequestRecorder::Progress&) {});
    for (size_t i = 0; i < workload.requests.size(); ++i) {
      if (!loop.WasSent(static_cast<int64_t>(i))) recorder.Cancel(static_cast<int64_t>(i));
    }
    return recorder.TakeRecords();
  }

  const Workload workload;
  boost::asio::io_context io{1};
  RequestRecorder recorder;
  SessionHistories histories;
  SessionLoop loop;
  AnsweringTarget target;
};

double SecondsOf(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

TEST(SessionLoop, ATurnSendsWhatWasAnsweredAndComesAfterItsPause) {
  SessionRun run(DrawnSessions(3, "agents:system=40,turns=4,user=20,tool=30,out=10,pause=0.02"),
                 {0.0, 0.01, 0.02});
  const std::vector<RequestRecord> records = run.Go();
  ASSERT_EQ(run.target.sent.size(), 12U);
  for (int64_t i = 0; i < 12; ++i) {
    const RequestRecord& record = records[static_cast<size_t>(i)];
    const SessionTurn& turn = *run.workload.requests[static_cast<size_t>(i)].turn;
    EXPECT_TRUE(record.completed()) << record.error;
    EXPECT_EQ(record.cached_tokens, i);
    const std::vector<int32_t>& prompt = run.target.prompts.at(i);
    if (turn.number == 0) {
      EXPECT_NEAR(SecondsOf(record.start - run.loop.start()), 0.01 * static_cast<double>(turn.session), 1e-6);
      EXPECT_TRUE(std::equal(prompt.begin(), prompt.begin() + 40, run.target.prompts.at(0).begin()))
          << "all have the same system prompt";
      EXPECT_EQ(turn.session == 0, prompt == run.target.prompts.at(0)) << "and a user of their own";
      continue;
    }
    const RequestRecord& before = records[static_cast<size_t>(i - 1)];
    EXPECT_GE(SecondsOf(record.due - before.last_token), turn.pause_s);
    EXPECT_EQ(record.due, record.start);
    EXPECT_GE(record.send_delay_ms, 0);
    std::vector<int32_t> history = run.target.prompts.at(i - 1);
    const std::vector<int32_t> answer = run.target.AnswerOf(i - 1);
    history.insert(history.end(), answer.begin(), answer.end());
    ASSERT_EQ(std::ssize(prompt), std::ssize(history) + turn.new_tokens);
    EXPECT_TRUE(std::equal(history.begin(), history.end(), prompt.begin()));
  }
}

TEST(SessionLoop, ATurnThatGoesWrongEndsItsSession) {
  SessionRun run(DrawnSessions(4, "agents:system=0,turns=3,user=20,tool=20,out=10,pause=0"), {0, 0, 0, 0});
  run.target.other_ends[0] = {.kind = RequestEnd::Kind::kRejected, .reason = "full"};
  run.target.other_ends[4] = {.kind = RequestEnd::Kind::kFailed, .reason = "broken"};
  run.target.loses_ids = 8;
  const std::vector<RequestRecord> records = run.Go();
  EXPECT_THAT(run.target.sent, testing::UnorderedElementsAre(0, 3, 4, 6, 7, 8, 9, 10, 11));
  EXPECT_TRUE(records[0].rejected);
  EXPECT_EQ(records[4].error, "broken");
  EXPECT_THAT(records[8].error, HasSubstr("token ids came of"));
  EXPECT_FALSE(records[8].rejected);
  for (const size_t completed : {3U, 6U, 7U, 9U, 10U, 11U}) EXPECT_TRUE(records[completed].completed());
}

TEST(SessionLoop, ADeadlineEndsASession) {
  SessionRun run(DrawnSessions(2, "agents:system=0,turns=2,user=20,tool=20,out=10,pause=0"), {0, 0},
                 {.deadline_s = 0.05});
  run.target.never_ends = 0;
  const std::vector<RequestRecord> records = run.Go();
  EXPECT_THAT(run.target.sent, ElementsAre(0, 2, 3));
  EXPECT_EQ(records[0].error, "not done 0.05 s after it was due");
  EXPECT_TRUE(records[3].completed());
}

TEST(SessionLoop, NoSessionBeginsAfterTheDurationAndThoseThatHaveGoOn) {
  // One at a time, and the first takes longer than there is time.
  SessionRun run(DrawnSessions(3, "agents:system=0,turns=3,user=20,tool=20,out=10,pause=0.1"), {0, 0.2, 0.2},
                 {.max_concurrency = 1, .duration_s = 0.1});
  const std::vector<RequestRecord> records = run.Go();
  EXPECT_THAT(run.target.sent, ElementsAre(0, 1, 2));
  EXPECT_TRUE(records[2].completed());
}

TEST(SessionLoop, SessionsMayEndWithTheDuration) {
  // The first waits for its second turn then, the second one's first turn is under way, the third has not
  // begun.
  SessionRun run(DrawnSessions(3, "agents:system=0,turns=2,user=20,tool=20,out=10,pause=5,answers=seeded"),
                 {0, 0, 3}, {.duration_s = 0.1, .end_sessions = true, .deadline_s = 0.3});
  run.target.never_ends = 2;
  const std::vector<RequestRecord> records = run.Go();
  EXPECT_THAT(run.target.sent, ElementsAre(0, 2));
  EXPECT_TRUE(records[0].completed());
  EXPECT_EQ(records[2].error, "not done 0.3 s after the sessions ended") << "what is under way goes on";
  EXPECT_GE(SecondsOf(Clock::now() - run.loop.start()), 0.4);
}

TEST(SessionLoop, SeededAnswersDoNotWantIds) {
  SessionRun run(DrawnSessions(1, "agents:system=0,turns=2,user=20,tool=20,out=10,pause=0,answers=seeded"),
                 {0});
  run.target.loses_ids = 0;
  const std::vector<RequestRecord> records = run.Go();
  EXPECT_TRUE(records[1].completed()) << records[1].error;
  for (const int32_t token : run.target.prompts.at(1)) EXPECT_LT(token, kPromptVocabSize);
}

}  // namespace
}  // namespace tandem
