#include "bench/online_bench.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/open_file_limit.h"
#include "base/param_error.h"
#include "bench/bench_progress.h"
#include "bench/bench_request.h"
#include "bench/completion_client.h"
#include "bench/engine_target.h"
#include "bench/http_target.h"
#include "bench/open_loop.h"
#include "bench/possible_hits.h"
#include "bench/prompt_tokens.h"
#include "bench/request_loop.h"
#include "bench/run_totals.h"
#include "bench/seconds.h"
#include "bench/session_histories.h"
#include "bench/session_loop.h"

namespace tandem {
namespace {

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// One run of a workload against whatever target.
class OnlineRun {
 public:
  OnlineRun(const Workload& workload, std::vector<double> times_s, const PromptSource& prompts,
            const OnlineBenchOptions& options)
      : workload_(workload),
        prompts_(prompts),
        options_(options),
        io_(std::make_shared<boost::asio::io_context>(1)),
        recorder_(std::make_shared<RequestRecorder>(workload.requests)) {
    // Without a limit nothing that begins waits: the plan ends where the duration does.
    const bool ends_by_itself = options.max_concurrency == 0 && !options.end_sessions;
    const RequestLoopOptions loop = {.max_concurrency = options.max_concurrency,
                                     .duration_s = ends_by_itself ? 0 : options.duration_s,
                                     .end_sessions = options.end_sessions,
                                     .deadline_s = options.deadline_s};
    if (workload.has_sessions()) {
      histories_.emplace(workload, prompts.seed, prompts.vocab_size);
      loop_ = std::make_unique<SessionLoop>(io_.get(), recorder_.get(), workload.requests, std::move(times_s),
                                            &*histories_, loop);
    } else {
      loop_ = std::make_unique<OpenLoop>(io_.get(), recorder_.get(), std::move(times_s), loop);
    }
  }

  const std::shared_ptr<boost::asio::io_context>& io() const { return io_; }
  const std::shared_ptr<RequestRecorder>& recorder() const { return recorder_; }
  RequestEndCallback end_callback() {
    return [this](int64_t index, RequestEnd end) { loop_->OnEnd(index, std::move(end)); };
  }
  RequestLoop& loop() { return *loop_; }

  // What does not depend on answers, before the clock starts.
  void SetPrompts(RequestTarget* target) {
    for (int64_t i = 0; i < num_requests(); ++i) {
      const WorkloadRequest& request = workload_.requests[static_cast<size_t>(i)];
      if (request.turn && request.turn->number > 0) continue;
      target->SetPrompt(i, histories_ ? histories_->Prompt(i)
                                      : PromptTokens(request, i, prompts_.seed, prompts_.vocab_size));
    }
  }

  // Once, after SetPrompts. All but the engine's counters. block_size: of the possible hits.
  BenchRun Run(RequestTarget* target, int64_t block_size, const char* title) {
    BenchProgress progress{title, num_requests(), 0};
    const double cpu_before_s = ThreadCpuSeconds();
    const Clock::time_point before = Clock::now();
    loop_->Run(target, progress.interval(), [&](const RequestRecorder::Progress& now) {
      if (options_.show_progress) progress.Show(now);
    });
    BenchRun run;
    run.online = OnlineFigures{.start = loop_->start(),
                               .peak_concurrency = loop_->peak_concurrency(),
                               .client_cpu_s = ThreadCpuSeconds() - cpu_before_s,
                               .client_s = std::chrono::duration<double>(Clock::now() - before).count()};
    run.records = TakeRecords(block_size);
    run.online->num_unsent = num_requests() - std::ssize(run.records);
    Clock::time_point last_token = loop_->start();
    for (const RequestRecord& record : run.records) {
      if (record.output_tokens > 0) last_token = std::max(last_token, record.last_token);
    }
    run.duration_s = std::chrono::duration<double>(last_token - loop_->start()).count();
    return run;
  }

 private:
  int64_t num_requests() const { return std::ssize(workload_.requests); }

  // Of the requests that were sent.
  std::vector<RequestRecord> TakeRecords(int64_t block_size) {
    std::vector<bool> was_sent(workload_.requests.size());
    for (int64_t i = 0; i < num_requests(); ++i) {
      was_sent[static_cast<size_t>(i)] = loop_->WasSent(i);
      if (!loop_->WasSent(i)) recorder_->Cancel(i);
    }
    std::vector<RequestRecord> records = recorder_->TakeRecords();
    CountPossibleHits(workload_, prompts_, histories_ ? &*histories_ : nullptr, block_size, was_sent,
                      &records);
    std::vector<RequestRecord> sent;
    sent.reserve(records.size());
    for (size_t i = 0; i < records.size(); ++i) {
      if (was_sent[i]) sent.push_back(std::move(records[i]));
    }
    return sent;
  }

  const Workload& workload_;
  const PromptSource prompts_;
  const OnlineBenchOptions& options_;
  const std::shared_ptr<boost::asio::io_context> io_;
  const std::shared_ptr<RequestRecorder> recorder_;
  std::optional<SessionHistories> histories_;
  std::unique_ptr<RequestLoop> loop_;
};

// Runs a workload that arrives at these times and returns what came of it.
using RunWorkload = std::function<BenchRun(const Workload& workload, std::vector<double> times_s,
                                           const OnlineBenchOptions& options, const char* title)>;

bool HasWindow(const OnlineBenchOptions& options) {
  return options.warm_up_s > 0 || options.cool_down_s > 0;
}

Status CheckAnyCompleted(const BenchRun& run) {
  const RunTotals totals = AddUpRun(run);
  if (totals.completed > 0) return {};
  if (totals.counted == 0) {
    return MakeError(ErrorCode::kUnavailable,
                     "none of {} requests was due between the warm-up and the cool-down", run.records.size());
  }
  for (const RequestRecord& record : run.records) {
    if (record.error.empty()) continue;
    return MakeError(
        ErrorCode::kUnavailable,
        "none of {} requests that count was completed: {} failed and {} were rejected in all, the "
        "first because: {}",
        totals.counted, totals.failed, totals.rejected, record.error);
  }
  return MakeError(ErrorCode::kUnavailable, "none of {} requests that count was completed", totals.counted);
}

// Of the first requests, which share nothing and wait for nothing.
Workload WarmUpOf(const Workload& workload, int64_t num_requests) {
  Workload warm_up;
  warm_up.name = workload.name;
  for (const WorkloadRequest& request : workload.requests) {
    if (std::ssize(warm_up.requests) == num_requests) break;
    warm_up.requests.push_back(
        {.prompt_tokens = request.prompt_tokens, .output_tokens = request.output_tokens});
  }
  return warm_up;
}

// The requests of the warm-up at once, then the plan.
Result<BenchRun> RunPlan(const OnlinePlan& plan, const OnlineBenchOptions& options,
                         const RunWorkload& run_workload) {
  TANDEM_RETURN_IF_ERROR(CheckOnlineOptions(options, plan));
  if (options.num_warmup > 0) {
    const Workload first = WarmUpOf(plan.workload, options.num_warmup);
    OnlineBenchOptions warm_up;
    warm_up.seed = options.seed ^ kWarmupPromptSeed;
    warm_up.show_progress = options.show_progress;
    warm_up.max_concurrency = options.max_concurrency;
    TANDEM_RETURN_IF_ERROR(CheckAnyCompleted(
        run_workload(first, std::vector<double>(first.requests.size()), warm_up, "warm-up")));
  }
  BenchRun run = run_workload(plan.workload, plan.times_s, options, "online");
  if (HasWindow(options)) {
    run.window = BenchWindow{.begin = run.online->start + FromSeconds(options.warm_up_s),
                             .end = run.online->start + FromSeconds(plan.span_s - options.cool_down_s),
                             .by_due = true};
  }
  TANDEM_RETURN_IF_ERROR(CheckAnyCompleted(run));
  return run;
}

// Files besides the connections: the program's own, and the event queue's.
constexpr int64_t kOtherFiles = 64;

// A connection for each request that may be under way at the same time.
Status MakeRoomForConnections(const OnlinePlan& plan, const OnlineBenchOptions& options) {
  auto count = static_cast<int64_t>(plan.times_s.size());
  if (options.max_concurrency > 0) count = std::min(count, options.max_concurrency);
  const int64_t limit = RaiseOpenFileLimit(count + kOtherFiles);
  const bool all_at_once = plan.times_s.back() == 0;
  if (limit >= count + kOtherFiles || !(all_at_once || options.max_concurrency > 0)) return {};
  return MakeError(
      ErrorCode::kResourceExhausted,
      "{} connections need {} open files and the system allows {} (ulimit -n): allow more, or use "
      "--max-concurrency {}",
      count, count + kOtherFiles, limit, std::max<int64_t>(limit - kOtherFiles, 1));
}

// Asks for a short answer, whose ids a next turn would have to send.
Status CheckReturnsTokenIds(const RunWorkload& run_workload) {
  Workload probe;
  probe.name = "probe";
  probe.requests.push_back({.prompt_tokens = 4, .output_tokens = 2});
  probe.requests.back().turn = SessionTurn{.is_last = true, .new_tokens = 4};
  OnlineBenchOptions options;
  options.seed = kWarmupPromptSeed;
  options.show_progress = false;
  const BenchRun run = run_workload(probe, {0.0}, options, "probe");
  const RequestRecord& record = run.records.front();
  if (record.completed()) return {};
  if (record.output_tokens != record.wanted_output_tokens) return CheckAnyCompleted(run);
  return MakeParamError(
      ErrorCode::kUnsupported, "workload",
      "the server does not return the ids of the tokens that it generates (return_token_ids), "
      "of which the next turn is made: answers=seeded has random tokens in their place");
}

void WarnOfBusyClient(const BenchRun& run) {
  constexpr double kBusyShare = 0.5;
  const double share = run.online->client_cpu_s.value_or(0) / std::max(run.online->client_s, 1e-9);
  if (share <= kBusyShare) return;
  LogWarn("the client was busy for {:.0f} % of the time: it may be what limits this benchmark", share * 100);
}

}  // namespace

Status CheckOnlineOptions(const OnlineBenchOptions& options, const OnlinePlan& plan) {
  const auto num_arrivals = std::count_if(
      plan.workload.requests.begin(), plan.workload.requests.end(),
      [](const WorkloadRequest& request) { return !request.turn || request.turn->number == 0; });
  TANDEM_CHECK(num_arrivals > 0 && std::ssize(plan.times_s) == num_arrivals, "{} times of {} arrivals",
               plan.times_s.size(), num_arrivals);
  if (options.end_sessions && (options.duration_s <= 0 || !plan.workload.has_sessions())) {
    return MakeParamError(ErrorCode::kInvalidArgument, "end-sessions",
                          "this needs a workload of sessions and a --duration, with which they end");
  }
  if (!HasWindow(options)) return {};
  const char* flag = options.warm_up_s > 0 ? "warm-up" : "cool-down";
  if (options.max_concurrency > 0 && options.duration_s <= 0) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, flag,
        "with --max-concurrency nobody knows before when the last request is sent: this needs "
        "a --duration");
  }
  if (options.warm_up_s + options.cool_down_s < plan.span_s) return {};
  return MakeParamError(ErrorCode::kInvalidArgument, flag,
                        "a warm-up of {} s and a cool-down of {} s leave nothing of the {:.3f} s in which "
                        "requests arrive",
                        options.warm_up_s, options.cool_down_s, plan.span_s);
}

Result<BenchRun> RunOnlineBench(Engine* engine, const OnlinePlan& plan, const OnlineBenchOptions& options) {
  const auto run_workload = [&](const Workload& workload, std::vector<double> times_s,
                                const OnlineBenchOptions& run_options, const char* title) {
    OnlineRun online(workload, std::move(times_s),
                     {.seed = run_options.seed, .vocab_size = engine->model_config().vocab_size},
                     run_options);
    EngineTarget target(engine, workload.requests, online.io(), online.recorder(), online.end_callback());
    online.SetPrompts(&target);
    // What the warm-up has computed is no work of this run's that was saved.
    engine->ForgetPrefixes();
    EngineStatsOfRun stats;
    std::optional<EnergyOfRun> energy;
    const auto begin = [&] {
      stats.before = engine->Stats();
      if (run_options.energy != nullptr) energy = BeginEnergy(run_options.energy);
    };
    const auto end = [&] {
      stats.after = engine->Stats();
      if (energy) energy->after = run_options.energy->Read();
    };
    begin();
    bool has_end = false;
    if (HasWindow(run_options)) {
      online.loop().CallAt(run_options.warm_up_s, begin);
      online.loop().CallAt(plan.span_s - run_options.cool_down_s, [&] {
        end();
        has_end = true;
      });
    }
    BenchRun run = online.Run(&target, stats.before.block_size, title);
    if (!has_end) end();
    run.engine = stats;
    run.energy = energy;
    // Tokens are taken on the engine's thread.
    run.online->client_cpu_s.reset();
    return run;
  };
  TANDEM_ASSIGN_OR_RETURN(BenchRun run, RunPlan(plan, options, run_workload));
  run.costs = engine->cost_table();
  run.kv_bytes_per_token = KvBytesPerToken(*engine);
  return run;
}

Result<BenchRun> RunOnlineBench(const CompletionServer& server, int64_t vocab_size, const OnlinePlan& plan,
                                const OnlineBenchOptions& options) {
  // A server does not say how long its blocks are.
  constexpr int64_t kBlockTokens = 32;
  TANDEM_CHECK(vocab_size >= 1, "a vocabulary of {} tokens", vocab_size);
  TANDEM_RETURN_IF_ERROR(MakeRoomForConnections(plan, options));
  const bool needs_ids = plan.workload.has_sessions() && !plan.workload.seeded_answers;
  const auto run_workload = [&](const Workload& workload, std::vector<double> times_s,
                                const OnlineBenchOptions& run_options, const char* title) {
    OnlineRun online(workload, std::move(times_s), {.seed = run_options.seed, .vocab_size = vocab_size},
                     run_options);
    HttpTarget target(online.io().get(), server, workload.requests, needs_ids, online.recorder().get(),
                      online.end_callback());
    online.SetPrompts(&target);
    return online.Run(&target, kBlockTokens, title);
  };
  if (needs_ids) TANDEM_RETURN_IF_ERROR(CheckReturnsTokenIds(run_workload));
  TANDEM_ASSIGN_OR_RETURN(BenchRun run, RunPlan(plan, options, run_workload));
  WarnOfBusyClient(run);
  return run;
}

}  // namespace tandem
