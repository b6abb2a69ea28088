#include "bench/offline_bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "bench/bench_progress.h"
#include "bench/bench_request.h"
#include "bench/possible_hits.h"
#include "bench/prompt_tokens.h"
#include "bench/request_recorder.h"
#include "bench/run_totals.h"
#include "bench/seconds.h"
#include "bench/steady_start.h"
#include "perf/layer_costs.h"
#include "planning/operating_point.h"
#include "planning/schedule_state.h"
#include "policy/strategy.h"

namespace tandem {
namespace {

// The benchmark's own thread wakes up so often.
constexpr std::chrono::milliseconds kLookInterval{50};

// Submits everything, and waits for everything or until the time is over.
class OfflineRun {
 public:
  // max_present: requests that are there at a time; the others are submitted as those end.
  OfflineRun(Engine* engine, const std::vector<WorkloadRequest>& requests, uint64_t seed, int64_t max_present)
      : engine_(engine),
        num_requests_(static_cast<int64_t>(requests.size())),
        max_present_(max_present),
        recorder_(std::make_shared<RequestRecorder>(requests)) {
    // The prompts exist before the clock starts.
    specs_.reserve(requests.size());
    begun_.reserve(requests.size());
    num_made_tokens_.reserve(requests.size());
    for (int64_t i = 0; i < num_requests_; ++i) {
      const WorkloadRequest& request = requests[static_cast<size_t>(i)];
      specs_.push_back(
          MakeBenchRequest(request, PromptTokens(request, i, seed, engine->model_config().vocab_size)));
      begun_.push_back(request.begun);
      num_made_tokens_.push_back(request.made_tokens);
    }
  }

  // Once. All but costs and kv_bytes_per_token.
  BenchRun Run(std::string_view title, const BenchRunOptions& options) {
    BenchRun run;
    // What an earlier run has computed is no work of this one's that was saved.
    engine_->ForgetPrefixes();
    BeginCounting(options, &run);
    const Clock::time_point start = Clock::now();
    SubmitSome(0);
    Clock::time_point end = Clock::time_point::max();
    if (options.duration_s > 0) {
      const Clock::time_point submitted = Clock::now();
      end = submitted + FromSeconds(options.duration_s);
      run.window = BenchWindow{.begin = submitted + FromSeconds(options.warm_up_s), .end = end};
    }
    Wait(title, options, end, &run);
    run.engine->after = engine_->Stats();
    if (run.energy) run.energy->after = options.energy->Read();
    if (Clock::now() >= end) {
      over_->store(true);
      engine_->CancelAll();
    }
    recorder_->KeepFirst(num_submitted_);
    // The last callbacks may still be returning.
    while (recorder_->WaitFor(kLookInterval).ended < num_submitted_) {
    }
    run.records = recorder_->TakeRecords();
    run.duration_s = std::chrono::duration<double>(LastToken(run.records, start) - start).count();
    return run;
  }

 private:
  // Notes the counters.
  void BeginCounting(const BenchRunOptions& options, BenchRun* run) const {
    run->engine = {.before = engine_->Stats(), .after = {}};
    if (options.energy != nullptr) run->energy = BeginEnergy(options.energy);
  }

  static Clock::time_point LastToken(const std::vector<RequestRecord>& records, Clock::time_point start) {
    Clock::time_point last = start;
    for (const RequestRecord& record : records) {
      if (record.output_tokens > 0) last = std::max(last, record.last_token);
    }
    return last;
  }

  void SubmitSome(int64_t num_ended) {
    for (; num_submitted_ < std::min(num_requests_, num_ended + max_present_); ++num_submitted_) {
      const int64_t index = num_submitted_;
      recorder_->Start(index, Clock::now());
      // Shared with the callbacks: the last one may still be returning when everything has ended.
      const auto on_output = [recorder = recorder_, over = over_, index](const RequestOutput& output) {
        if (!output.tokens.empty()) {
          recorder->AddTokens(index, static_cast<int64_t>(output.tokens.size()), output.cpu_tier,
                              Clock::now());
          for (const SampledToken& token : output.tokens) recorder->DigestToken(index, token.token);
        }
        if (output.finish_reason == FinishReason::kCancelled && over->load()) {
          recorder->Cancel(index);
        } else if (output.finish_reason != FinishReason::kNone) {
          recorder->End(index, ReasonOfFailure(output));
        }
      };
      const auto at = static_cast<size_t>(index);
      RequestSpec spec = std::move(specs_[at]);
      auto id = begun_[at] ? engine_->SubmitBegun(std::move(spec), num_made_tokens_[at], on_output)
                           : engine_->Submit(std::move(spec), on_output);
      if (!id.ok()) recorder_->End(index, id.error().message);
    }
  }

  // Until all have ended, or until `end`. Notes the counters where the window begins.
  void Wait(std::string_view title, const BenchRunOptions& options, Clock::time_point end, BenchRun* run) {
    BenchProgress progress{std::string(title), num_requests_, options.duration_s};
    bool in_window = !run->window;
    Clock::time_point show_at = Clock::now();
    while (true) {
      const auto now = Clock::now();
      if (now >= end) break;
      if (!in_window && now >= run->window->begin) {
        in_window = true;
        // The counters and the tokens that count are of the same time.
        run->window->begin = now;
        BeginCounting(options, run);
      }
      const auto next = std::min<Clock::time_point>(
          {now + kLookInterval, end, in_window ? Clock::time_point::max() : run->window->begin});
      const RequestRecorder::Progress ended =
          recorder_->WaitFor(std::chrono::ceil<std::chrono::milliseconds>(next - now));
      if (options.show_progress && Clock::now() >= show_at) {
        progress.Show(ended);
        show_at += progress.interval();
      }
      SubmitSome(ended.ended);
      if (ended.ended == num_requests_) break;
    }
    if (run->window) run->window->end = Clock::now();
  }

  Engine* const engine_;
  const int64_t num_requests_;
  const int64_t max_present_;
  int64_t num_submitted_ = 0;
  const std::shared_ptr<RequestRecorder> recorder_;
  const std::shared_ptr<std::atomic<bool>> over_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<RequestSpec> specs_;
  // Of each request: whether it begins amid its output, and what it has made of it.
  std::vector<bool> begun_;
  std::vector<int64_t> num_made_tokens_;
};

Status CheckAnyCounts(const BenchRun& run) {
  const RunTotals totals = AddUpRun(run);
  if (totals.completed > 0 || (run.window && totals.output_tokens > 0)) return {};
  for (const RequestRecord& record : run.records) {
    if (record.error.empty()) continue;
    return MakeError(ErrorCode::kUnavailable, "{} {} requests failed, the first because: {}",
                     totals.unfinished > 0 ? "no token came in time, and" : "all", totals.failed,
                     record.error);
  }
  const auto since_start_s = [&run](Clock::time_point time) {
    return std::chrono::duration<double>(time - run.records.front().start).count();
  };
  if (run.window->end <= run.window->begin) {
    return MakeError(
        ErrorCode::kUnavailable,
        "all {} requests were done after {:.1f} s, before the warm-up was over: more requests are "
        "needed",
        run.records.size(), since_start_s(run.window->end));
  }
  return MakeError(ErrorCode::kUnavailable,
                   "no token came between second {:.1f} and second {:.1f} of the run",
                   since_start_s(run.window->begin), since_start_s(run.window->end));
}

// The queue never runs dry, and what comes is like these.
SteadyWork SteadyWorkOf(const Engine& engine, const EngineStats& stats,
                        std::span<const WorkloadRequest> requests) {
  const MeanLengths lengths = MeanLengthsOf(requests);
  const EngineOptions& options = engine.options();
  const auto rows_of = [&](int64_t blocks) {
    return static_cast<double>(blocks * stats.block_size) / lengths.context;
  };
  SteadyWork work{{.prompt_tokens_per_output = lengths.prompt_per_output,
                   .mean_context = lengths.context,
                   .mean_prompt = lengths.prompt}};
  const auto max_num_seqs = static_cast<double>(options.max_num_seqs);
  work.max_rows = static_cast<double>(options.max_num_batched_tokens);
  work.gpu_rows = std::min({rows_of(stats.gpu_blocks_total), max_num_seqs, work.max_rows});
  work.max_cpu_rows = std::min(rows_of(stats.cpu_blocks_total), max_num_seqs - work.gpu_rows);
  work.num_cohorts = static_cast<double>(engine.schedule_limits().num_riding_cohorts());
  return work;
}

// costs: of the strategy; may be null.
TierRoom RoomOf(const Engine& engine, const LayerCosts* costs, std::span<const WorkloadRequest> requests) {
  const EngineStats stats = engine.Stats();
  const std::string& strategy = engine.options().strategy;
  TierRoom room{.block_size = stats.block_size,
                .gpu_blocks = stats.gpu_blocks_total,
                .cpu_blocks = stats.cpu_blocks_total,
                .max_num_seqs = engine.options().max_num_seqs};
  const auto created = CreateStrategy(strategy, costs);
  if (costs != nullptr && created.ok())
    room.max_cpu_requests = (*created)->SteadyCpuRows(SteadyWorkOf(engine, stats, requests));
  return room;
}

// How many requests a strategy keeps in the cpu tier depends on what iterations take here, which is a little
// more than the sum of its parts: begun too low, the tier would be filled while the clock runs. So first
// runs, which nobody counts, let the engine learn that; without the cpu tier before with it, since a strategy
// weighs its iterations against those without cpu rows, of which it may see none.
Status LearnCosts(Engine* engine, const std::vector<WorkloadRequest>& requests,
                  const BenchRunOptions& options) {
  constexpr double kGpuOnlySeconds = 1;
  constexpr double kSeconds = 1.5;
  const auto learn = [&](double seconds) {
    const std::unique_ptr<LayerCosts> costs = engine->LearnedCosts();
    std::vector<WorkloadRequest> begun = requests;
    BeginAmidWork(RoomOf(*engine, costs.get(), begun), &begun);
    const auto count = static_cast<int64_t>(begun.size());
    OfflineRun(engine, begun, options.seed ^ kWarmupPromptSeed, count)
        .Run("learning", {.show_progress = false, .duration_s = seconds});
  };
  if (engine->cost_table() != nullptr) {
    const std::string strategy = engine->options().strategy;
    const int64_t async_cohorts = engine->options().async_cohorts;
    TANDEM_RETURN_IF_ERROR(engine->UseStrategy("gpu-only", async_cohorts, Engine::Learned::kKeep));
    learn(kGpuOnlySeconds);
    TANDEM_RETURN_IF_ERROR(engine->UseStrategy(strategy, async_cohorts, Engine::Learned::kKeep));
  }
  learn(kSeconds);
  return {};
}

// Begins amid the work; returns what begins.
Result<SteadyRequests> BeginSteadily(Engine* engine, const BenchRunOptions& options,
                                     std::vector<WorkloadRequest>* requests) {
  const std::string strategy = engine->options().strategy;
  const auto created = CreateStrategy(strategy, nullptr);
  if (created.ok() && (*created)->uses_cpu_tier())
    TANDEM_RETURN_IF_ERROR(LearnCosts(engine, *requests, options));
  const std::unique_ptr<LayerCosts> costs = engine->LearnedCosts();
  const TierRoom room = RoomOf(*engine, costs.get(), *requests);
  SteadyRequests steady{.num_begun = BeginAmidWork(room, requests)};
  steady.num_in_cpu_tier = std::ranges::count(PlacesOf(room, *requests), std::optional<Tier>(Tier::kCpu));
  // A closed loop keeps as many requests as begin, whatever the strategy would like. Without a window all
  // requests are to be done, also those that would have ended by then.
  if (costs != nullptr && !options.closed_loop && options.duration_s > 0) {
    const SteadyPlay play{.strategy = strategy, .limits = engine->schedule_limits(), .costs = costs.get()};
    TANDEM_ASSIGN_OR_RETURN(steady, PlayIntoSteadyState(room, play, requests));
  }
  if (costs != nullptr) {
    const EngineStats stats = engine->Stats();
    LogInfo(
        "learned so far: iterations without cpu rows take {:.3f} times what the measured costs say, with two "
        "sub-batches {:.3f}, with riders {:.3f}, CPU attention {:.3f}",
        stats.iteration_factors[0], stats.iteration_factors[1], stats.iteration_factors[2],
        stats.cpu_attention_factor);
  }
  LogInfo(
      "{} of {} requests are amid their output at the start, {} in the cpu tier, as after {:.0f} s played",
      steady.num_begun, requests->size(), steady.num_in_cpu_tier, steady.played_s);
  return steady;
}

}  // namespace

Result<BenchRun> RunOfflineBench(Engine* engine, const Workload& workload, const BenchRunOptions& options) {
  TANDEM_CHECK(!workload.requests.empty(), "a benchmark without requests");
  if (options.num_warmup > 0) {
    const auto count = std::min(workload.requests.size(), static_cast<size_t>(options.num_warmup));
    const std::vector<WorkloadRequest> warmup(workload.requests.begin(),
                                              workload.requests.begin() + static_cast<std::ptrdiff_t>(count));
    TANDEM_RETURN_IF_ERROR(CheckAnyCounts(OfflineRun(engine, warmup, options.seed ^ kWarmupPromptSeed, count)
                                              .Run("warm-up", {.show_progress = options.show_progress})));
  }
  std::vector<WorkloadRequest> requests = workload.requests;
  auto max_present = static_cast<int64_t>(requests.size());
  std::optional<SteadyRequests> begun;
  if (options.steady_start) {
    TANDEM_ASSIGN_OR_RETURN(begun, BeginSteadily(engine, options, &requests));
    if (options.closed_loop) max_present = std::max<int64_t>(1, begun->num_begun);
  }
  BenchRun run = OfflineRun(engine, requests, options.seed, max_present).Run("offline", options);
  run.begun = begun;
  run.costs = engine->cost_table();
  run.kv_bytes_per_token = KvBytesPerToken(*engine);
  TANDEM_RETURN_IF_ERROR(CheckAnyCounts(run));
  CountPossibleHits({.requests = std::move(requests)},
                    {.seed = options.seed, .vocab_size = engine->model_config().vocab_size}, nullptr,
                    run.engine->after.block_size, std::vector<bool>(run.records.size(), true), &run.records);
  const auto is_unfinished = [](const RequestRecord& record) { return record.cancelled; };
  if (options.duration_s > 0 && std::none_of(run.records.begin(), run.records.end(), is_unfinished)) {
    LogWarn(
        "all {} requests were done after {:.1f} of {:.1f} s: what counts ends there, the end of the work "
        "included; more requests are needed",
        run.records.size(), run.duration_s, options.duration_s);
  }
  return run;
}

}  // namespace tandem
