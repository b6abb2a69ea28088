#include "bench/online_bench.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <memory>
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
#include "bench/run_totals.h"
#include "bench/seconds.h"

namespace tandem {
namespace {

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// One run of some requests against whatever target.
class OnlineRun {
 public:
  OnlineRun(const std::vector<WorkloadRequest>& requests, std::vector<double> times_s,
            const OnlineBenchOptions& options)
      : options_(options),
        io_(std::make_shared<boost::asio::io_context>(1)),
        recorder_(std::make_shared<RequestRecorder>(requests)),
        num_requests_(static_cast<int64_t>(requests.size())),
        loop_(io_.get(), recorder_.get(),
              {.send_times_s = std::move(times_s),
               .max_concurrency = options.max_concurrency,
               // Without a limit nothing waits: the plan ends where the duration does.
               .duration_s = options.max_concurrency > 0 ? options.duration_s : 0,
               .deadline_s = options.deadline_s}) {}

  const std::shared_ptr<boost::asio::io_context>& io() const { return io_; }
  const std::shared_ptr<RequestRecorder>& recorder() const { return recorder_; }
  RequestEndCallback end_callback() {
    return [this](int64_t index, RequestEnd end) { loop_.OnEnd(index, std::move(end)); };
  }
  OpenLoop& loop() { return loop_; }

  // Once. All but the engine's counters.
  BenchRun Run(RequestTarget* target, const char* title) {
    BenchProgress progress{title, num_requests_, 0};
    const double cpu_before_s = ThreadCpuSeconds();
    const Clock::time_point before = Clock::now();
    loop_.Run(target, progress.interval(), [&](const RequestRecorder::Progress& now) {
      if (options_.show_progress) progress.Show(now);
    });
    BenchRun run;
    run.online = OnlineFigures{.start = loop_.start(),
                               .num_unsent = num_requests_ - loop_.num_sent(),
                               .peak_concurrency = loop_.peak_concurrency(),
                               .client_cpu_s = ThreadCpuSeconds() - cpu_before_s,
                               .client_s = std::chrono::duration<double>(Clock::now() - before).count()};
    for (int64_t i = loop_.num_sent(); i < num_requests_; ++i) recorder_->Cancel(i);
    run.records = recorder_->TakeRecords();
    run.records.resize(static_cast<size_t>(loop_.num_sent()));
    Clock::time_point last_token = loop_.start();
    for (const RequestRecord& record : run.records) {
      if (record.output_tokens > 0) last_token = std::max(last_token, record.last_token);
    }
    run.duration_s = std::chrono::duration<double>(last_token - loop_.start()).count();
    return run;
  }

 private:
  const OnlineBenchOptions& options_;
  const std::shared_ptr<boost::asio::io_context> io_;
  const std::shared_ptr<RequestRecorder> recorder_;
  const int64_t num_requests_;
  OpenLoop loop_;
};

// Runs requests at these times and returns what came of it.
using RunRequests =
    std::function<BenchRun(const std::vector<WorkloadRequest>& requests, std::vector<double> times_s,
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

// The requests of the warm-up at once, then the plan.
Result<BenchRun> RunPlan(const OnlinePlan& plan, const OnlineBenchOptions& options,
                         const RunRequests& run_requests) {
  TANDEM_RETURN_IF_ERROR(CheckOnlineOptions(options, plan));
  const std::vector<WorkloadRequest>& requests = plan.workload.requests;
  if (options.num_warmup > 0) {
    const size_t count = std::min(requests.size(), static_cast<size_t>(options.num_warmup));
    const std::vector<WorkloadRequest> first(requests.begin(),
                                             requests.begin() + static_cast<std::ptrdiff_t>(count));
    OnlineBenchOptions warm_up;
    warm_up.seed = options.seed ^ kWarmupPromptSeed;
    warm_up.show_progress = options.show_progress;
    warm_up.max_concurrency = options.max_concurrency;
    TANDEM_RETURN_IF_ERROR(
        CheckAnyCompleted(run_requests(first, std::vector<double>(count), warm_up, "warm-up")));
  }
  BenchRun run = run_requests(requests, plan.times_s, options, "online");
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

void WarnOfBusyClient(const BenchRun& run) {
  constexpr double kBusyShare = 0.5;
  const double share = run.online->client_cpu_s.value_or(0) / std::max(run.online->client_s, 1e-9);
  if (share <= kBusyShare) return;
  LogWarn("the client was busy for {:.0f} % of the time: it may be what limits this benchmark", share * 100);
}

}  // namespace

Status CheckOnlineOptions(const OnlineBenchOptions& options, const OnlinePlan& plan) {
  TANDEM_CHECK(!plan.times_s.empty() && plan.times_s.size() == plan.workload.requests.size(),
               "{} times of {} requests", plan.times_s.size(), plan.workload.requests.size());
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
  const auto run_requests = [&](const std::vector<WorkloadRequest>& requests, std::vector<double> times_s,
                                const OnlineBenchOptions& run_options, const char* title) {
    OnlineRun online(requests, std::move(times_s), run_options);
    // The prompts exist before the clock starts.
    std::vector<RequestSpec> specs;
    specs.reserve(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      specs.push_back(MakeBenchRequest(requests[i], static_cast<int64_t>(i), run_options.seed,
                                       engine->model_config().vocab_size));
    }
    EngineTarget target(engine, std::move(specs), online.io(), online.recorder(), online.end_callback());
    // What the warm-up has computed is no work of this run's that was saved.
    engine->ForgetPrefixes();
    EngineStatsOfRun stats{.before = engine->Stats(), .after = {}};
    bool has_end = false;
    if (HasWindow(run_options)) {
      online.loop().CallAt(run_options.warm_up_s, [&] { stats.before = engine->Stats(); });
      online.loop().CallAt(plan.span_s - run_options.cool_down_s, [&] {
        stats.after = engine->Stats();
        has_end = true;
      });
    }
    BenchRun run = online.Run(&target, title);
    if (!has_end) stats.after = engine->Stats();
    run.engine = stats;
    // Tokens are taken on the engine's thread.
    run.online->client_cpu_s.reset();
    return run;
  };
  TANDEM_ASSIGN_OR_RETURN(BenchRun run, RunPlan(plan, options, run_requests));
  run.costs = engine->cost_table();
  run.kv_bytes_per_token = KvBytesPerToken(*engine);
  return run;
}

Result<BenchRun> RunOnlineBench(const CompletionServer& server, int64_t vocab_size, const OnlinePlan& plan,
                                const OnlineBenchOptions& options) {
  TANDEM_CHECK(vocab_size >= 1, "a vocabulary of {} tokens", vocab_size);
  TANDEM_RETURN_IF_ERROR(MakeRoomForConnections(plan, options));
  const auto run_requests = [&](const std::vector<WorkloadRequest>& requests, std::vector<double> times_s,
                                const OnlineBenchOptions& run_options, const char* title) {
    OnlineRun online(requests, std::move(times_s), run_options);
    std::vector<std::string> texts;
    std::vector<int64_t> max_tokens;
    texts.reserve(requests.size());
    max_tokens.reserve(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto prompt =
          RandomPrompt(run_options.seed, static_cast<int64_t>(i), requests[i].prompt_tokens, vocab_size);
      texts.push_back(MakeCompletionRequest(server, prompt, requests[i].output_tokens));
      max_tokens.push_back(requests[i].output_tokens);
    }
    HttpTarget target(
        online.io().get(),
        {{boost::asio::ip::make_address(server.address), server.port}, server.tls, server.url.host},
        std::move(texts), std::move(max_tokens), online.recorder().get(), online.end_callback());
    return online.Run(&target, title);
  };
  TANDEM_ASSIGN_OR_RETURN(BenchRun run, RunPlan(plan, options, run_requests));
  WarnOfBusyClient(run);
  return run;
}

}  // namespace tandem
