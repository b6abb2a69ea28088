#include "bench/agents_play_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <memory>
#include <queue>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/block_hash.h"
#include "base/kv_layout.h"
#include "bench/agent_sessions.h"
#include "bench/distribution.h"
#include "bench/possible_hits.h"
#include "bench/seeded_draws.h"
#include "bench/session_histories.h"
#include "kv/kv_books.h"
#include "policy/strategy.h"
#include "simulate/schedule_simulation.h"

namespace tandem {
namespace {

constexpr int64_t kBlock = 32;
constexpr uint64_t kSeed = 11;
constexpr int64_t kVocabulary = 32'000;

ScheduleLimits LimitsOf(const AgentsMachine& machine) {
  return {.max_num_seqs = 256,
          .max_num_batched_tokens = 2048,
          .reserve_blocks = std::max<int64_t>(1, machine.gpu_tokens / kBlock / 100),
          .num_layers = machine.costs->num_layers(),
          .max_transit_tokens = 16'384,
          .max_cohort_rows = 256,
          .max_rider_rows = 256};
}

class AgentsPlay {
 public:
  AgentsPlay(std::string_view strategy, const AgentsMachine& machine, const AgentsLoad& load)
      : machine_(machine),
        load_(load),
        workload_(DrawSessions(load.workload, Style(load), load.num_sessions, kSeed)),
        histories_(workload_, kSeed, kVocabulary),
        possible_(kBlock),
        books_(KvBooks::Create(kBlock, {machine.gpu_tokens / kBlock, machine.cpu_tokens / kBlock}).value()),
        caching_(books_.get()),
        simulation_(SimulatedBooks(kBlock, machine.gpu_tokens / kBlock, machine.cpu_tokens / kBlock),
                    LimitsOf(machine), machine.costs),
        strategy_(CreateStrategy(strategy, machine.costs).value()) {
    if (machine.caching) simulation_.PlayIn(&caching_);
    num_turns_ = workload_.requests.size();
    system_tokens_ = workload_.requests.front().prompt_tokens - workload_.requests.front().turn->new_tokens;
    for (size_t i = 0; i < num_turns_; ++i) {
      if (workload_.requests[i].turn->number == 0) first_turns_.push_back(static_cast<int64_t>(i));
    }
    std::mt19937_64 random(kSeed);
    double start_s = 0;
    for (size_t session = 0; session < first_turns_.size(); ++session) {
      starts_s_.push_back(start_s);
      if (load.sessions_per_s > 0) start_s += DrawExponential(random) / load.sessions_per_s;
    }
  }

  AgentsPlayed Play() {
    while (next_session_ < first_turns_.size() || !due_.empty() || !simulation_.done()) {
      SendWhatIsDue();
      if (simulation_.done()) {
        const double idle_s = NextDue() - now_s_;
        now_s_ += idle_s;
        Look(idle_s);
        continue;
      }
      if (!Step()) break;
    }
    Finish();
    return played_;
  }

 private:
  struct Turn {
    double due_s = 0;
    double first_token_s = 0;
    double end_s = 0;
  };
  struct Due {
    double at_s = 0;
    int64_t turn = 0;
    bool operator<(const Due& other) const { return at_s > other.at_s; }
  };

  static SessionStyle Style(const AgentsLoad& load) {
    SessionStyle style = ParseSessionStyle(load.workload).value();
    style.pause_s = load.pause_s;
    return style;
  }
  const WorkloadRequest& RequestOf(int64_t turn) const {
    return workload_.requests[static_cast<size_t>(turn)];
  }

  bool MayBegin() const {
    if (next_session_ >= first_turns_.size()) return false;
    return load_.sessions_per_s > 0 ? starts_s_[next_session_] <= now_s_ : num_sessions_ < load_.num_at_once;
  }
  double NextDue() const {
    double next_s = due_.empty() ? std::numeric_limits<double>::infinity() : due_.top().at_s;
    if (next_session_ < first_turns_.size() && load_.sessions_per_s > 0)
      next_s = std::min(next_s, starts_s_[next_session_]);
    return next_s;
  }

  void SendWhatIsDue() {
    while (MayBegin()) {
      const double at_s = load_.sessions_per_s > 0 ? starts_s_[next_session_] : now_s_;
      ++num_sessions_;
      Send(first_turns_[next_session_++], at_s);
    }
    while (!due_.empty() && due_.top().at_s <= now_s_) {
      const Due due = due_.top();
      due_.pop();
      Send(due.turn, due.at_s);
    }
  }

  void Send(int64_t turn, double due_s) {
    const WorkloadRequest& request = RequestOf(turn);
    const std::vector<int32_t> prompt = histories_.Prompt(turn);
    // Seeded: known before they are made.
    EXPECT_TRUE(histories_.AddAnswer(turn, {}));
    const auto id = static_cast<SequenceId>(turn + 1);
    uint64_t beginning = 0;
    played_.prompt_tokens += request.prompt_tokens;
    possible_of_[id] = possible_.Count(prompt);
    if (machine_.caching) {
      std::vector<int32_t> all = prompt;
      const std::span<const int32_t> answer = AnswerOf(turn);
      all.insert(all.end(), answer.begin(), answer.end());
      const std::vector<BlockHash> hashes = hasher_.FullBlocks(hasher_.Root(""), all);
      books_->Identify(id, hashes);
      beginning = hashes[kPartitionTokens / kBlock - 1].halves[0];
    }
    simulation_.Submit(id, request.prompt_tokens, request.output_tokens, false, beginning);
    turns_[id] = {.due_s = due_s};
    kv_tokens_of_[request.turn->session] = request.prompt_tokens + request.output_tokens - system_tokens_;
  }

  // The history has it already.
  std::span<const int32_t> AnswerOf(int64_t turn) const {
    const WorkloadRequest& request = RequestOf(turn);
    const std::span<const int32_t> sent = histories_.SentBy(turn);
    return {sent.data() + sent.size(), static_cast<size_t>(request.output_tokens)};
  }

  bool Step() {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const IterationPlan plan = strategy_->Plan(simulation_.state(), simulation_.books());
    plan_us_ += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    const double before_us = simulation_.counts().us;
    const Status status = plan.empty() ? Status(MakeError(ErrorCode::kInvalidArgument, "an empty plan"))
                                       : simulation_.Apply(plan);
    if (!status.ok()) {
      ADD_FAILURE() << status.error().message;
      return false;
    }
    const double step_s = (simulation_.counts().us - before_us) / 1e6;
    now_s_ += step_s;
    played_.gpu_s += step_s;
    Look(step_s);
    for (const EndedSequence& ended : simulation_.ended()) End(ended);
    return true;
  }

  void Look(double step_s) {
    for (const ScheduledSequence& each : simulation_.state().running) {
      Turn& turn = turns_.at(each.id);
      const int64_t prompt_len = RequestOf(static_cast<int64_t>(each.id) - 1).prompt_tokens;
      if (turn.first_token_s == 0 && each.num_tokens > prompt_len) turn.first_token_s = now_s_;
    }
    int64_t kv_tokens = kv_tokens_of_.empty() ? 0 : system_tokens_;
    for (const auto& [session, tokens] : kv_tokens_of_) kv_tokens += tokens;
    looked_.push_back(
        {now_s_, step_s, static_cast<double>(kv_tokens_of_.size()), static_cast<double>(kv_tokens)});
    double held = 0;
    double total = 0;
    for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
      total += static_cast<double>(simulation_.books().total_blocks(tier));
      held +=
          static_cast<double>(simulation_.books().total_blocks(tier) - simulation_.books().free_blocks(tier));
    }
    played_.most_in_use = std::max(played_.most_in_use, held / total);
  }

  void End(const EndedSequence& ended) {
    const auto index = static_cast<int64_t>(ended.id) - 1;
    const WorkloadRequest& request = RequestOf(index);
    Turn& turn = turns_.at(ended.id);
    turn.end_s = now_s_;
    if (turn.first_token_s == 0) turn.first_token_s = now_s_;
    const int64_t possible = possible_of_.at(ended.id);
    played_.possible_hits += possible;
    played_.computed_twice += std::max<int64_t>(0, possible - ended.num_cached);
    std::vector<int32_t> computed(histories_.SentBy(index).begin(), histories_.SentBy(index).end());
    const std::span<const int32_t> answer = AnswerOf(index);
    computed.insert(computed.end(), answer.begin(), answer.end() - 1);
    possible_.Add(computed);
    if (!request.turn->is_last) {
      due_.push({now_s_ + RequestOf(index + 1).turn->pause_s, index + 1});
      return;
    }
    kv_tokens_of_.erase(request.turn->session);
    --num_sessions_;
    sessions_ended_s_.push_back(now_s_);
  }

  void Finish() {
    const SimulationCounts& counts = simulation_.counts();
    played_.computed_twice += counts.recomputed;
    played_.num_preemptions = counts.preemptions;
    played_.rows_gpu = counts.gpu_rows;
    played_.rows_cpu = counts.main_cpu_rows + counts.cohort_rows + counts.rider_tokens;
    played_.copied_down = counts.copied_down;
    played_.cpu_attention_s = counts.cpu_us / 1e6;
    played_.shapes = counts.shapes;
    played_.plan_us = plan_us_ / static_cast<double>(std::max<int64_t>(1, counts.iterations));
    // The first third of the sessions brings their number up.
    const size_t warm = first_turns_.size() / 3;
    const double begin_s = turns_.contains(static_cast<SequenceId>(first_turns_[warm] + 1))
                               ? turns_.at(static_cast<SequenceId>(first_turns_[warm] + 1)).due_s
                               : 0;
    const double end_s = turns_.at(static_cast<SequenceId>(first_turns_.back() + 1)).due_s;
    std::vector<double> turn_s;
    std::vector<double> first_s;
    turn_s.reserve(turns_.size());
    first_s.reserve(turns_.size());
    int64_t num_ended = 0;
    for (const auto& [id, turn] : turns_) {
      if (turn.end_s > begin_s && turn.end_s <= end_s) ++num_ended;
      if (turn.due_s < begin_s || turn.due_s > end_s) continue;
      turn_s.push_back(turn.end_s - turn.due_s);
      first_s.push_back(turn.first_token_s - turn.due_s);
    }
    played_.num_turns = std::ssize(turn_s);
    const Distribution turns = Summarize(std::move(turn_s)).value_or(Distribution());
    const Distribution firsts = Summarize(std::move(first_s)).value_or(Distribution());
    played_.turn_p50_s = turns.median;
    played_.turn_p99_s = turns.p99;
    played_.first_token_p50_s = firsts.median;
    played_.first_token_p99_s = firsts.p99;
    const double minutes = std::max(1e-9, (end_s - begin_s) / 60);
    played_.turns_per_minute = static_cast<double>(num_ended) / minutes;
    played_.sessions_per_minute =
        static_cast<double>(std::ranges::count_if(
            sessions_ended_s_, [&](double at_s) { return at_s > begin_s && at_s <= end_s; })) /
        minutes;
    double seconds = 0;
    for (const Looked& look : looked_) {
      if (look.at_s < begin_s || look.at_s > end_s) continue;
      seconds += look.step_s;
      played_.mean_sessions += look.step_s * look.num_sessions;
      played_.mean_kv_tokens += look.step_s * look.kv_tokens;
    }
    played_.mean_sessions /= std::max(1e-9, seconds);
    played_.mean_kv_tokens /= std::max(1e-9, seconds);
  }

  struct Looked {
    double at_s = 0;
    double step_s = 0;
    double num_sessions = 0;
    double kv_tokens = 0;
  };

  const AgentsMachine machine_;
  const AgentsLoad load_;
  const Workload workload_;
  SessionHistories histories_;
  PossibleHits possible_;
  const BlockHasher hasher_ = BlockHasher({1, 2}, kBlock);
  std::unique_ptr<KvBooks> books_;
  CachingBooks caching_;
  ScheduleSimulation simulation_;
  std::unique_ptr<Strategy> strategy_;
  size_t num_turns_ = 0;
  int64_t system_tokens_ = 0;
  std::vector<int64_t> first_turns_;
  std::vector<double> starts_s_;
  size_t next_session_ = 0;
  int64_t num_sessions_ = 0;  // begun and not ended
  double now_s_ = 0;
  double plan_us_ = 0;
  std::priority_queue<Due> due_;  // later turns
  std::unordered_map<SequenceId, Turn> turns_;
  std::unordered_map<SequenceId, int64_t> possible_of_;
  std::unordered_map<int64_t, int64_t> kv_tokens_of_;  // of sessions, but for what they have in common
  std::vector<double> sessions_ended_s_;
  std::vector<Looked> looked_;
  AgentsPlayed played_;
};

}  // namespace

AgentsPlayed PlayAgents(std::string_view strategy, const AgentsMachine& machine, const AgentsLoad& load) {
  return AgentsPlay(strategy, machine, load).Play();
}

}  // namespace tandem
