#include "bench/offline_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "bench/bench_progress.h"
#include "bench/request_recorder.h"

namespace tandem {
namespace {

// Prompts of the warm-up differ from those of the run, whose prefixes a cache might otherwise know.
constexpr uint64_t kWarmupSeed = 0x5851f42d4c957f2dU;

RequestSpec MakeSpec(const WorkloadRequest& request, int64_t index, uint64_t seed, int64_t vocab_size) {
  RequestSpec spec;
  spec.prompt_tokens = RandomPrompt(seed, index, request.prompt_tokens, vocab_size);
  spec.sampling.max_tokens = request.output_tokens;
  spec.sampling.min_tokens = request.output_tokens;
  spec.sampling.ignore_eos = true;
  spec.sampling.temperature = 0;
  return spec;
}

std::string ReasonOfFailure(const RequestOutput& output) {
  if (output.error) return output.error->message;
  if (output.finish_reason == FinishReason::kLength) return {};
  return "ended with finish reason " + std::string(FinishReasonName(output.finish_reason));
}

// Submits everything, waits for everything.
std::vector<RequestRecord> RunAll(Engine* engine, const std::vector<WorkloadRequest>& requests, uint64_t seed,
                                  std::string_view title, bool show_progress) {
  // The prompts exist before the clock starts.
  std::vector<RequestSpec> specs;
  specs.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    specs.push_back(MakeSpec(requests[i], static_cast<int64_t>(i), seed, engine->model_config().vocab_size));
  }
  // Shared with the callbacks: the last one may still be returning when everything has ended.
  const auto recorder = std::make_shared<RequestRecorder>(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    recorder->Start(index, Clock::now());
    auto id = engine->Submit(std::move(specs[i]), [recorder, index](const RequestOutput& output) {
      if (!output.tokens.empty()) {
        recorder->AddTokens(index, static_cast<int64_t>(output.tokens.size()), Clock::now());
      }
      if (output.finish_reason != FinishReason::kNone) recorder->End(index, ReasonOfFailure(output));
    });
    if (!id.ok()) recorder->End(index, id.error().message);
  }
  BenchProgress progress{std::string(title), static_cast<int64_t>(requests.size())};
  while (true) {
    const RequestRecorder::Progress now = recorder->WaitFor(progress.interval());
    if (show_progress) progress.Show(now);
    if (now.ended == static_cast<int64_t>(requests.size())) break;
  }
  return recorder->TakeRecords();
}

Status CheckAnyCompleted(const std::vector<RequestRecord>& records) {
  for (const RequestRecord& record : records) {
    if (record.completed()) return {};
  }
  return MakeError(ErrorCode::kUnavailable, "all {} requests failed, the first because: {}", records.size(),
                   records.front().error);
}

}  // namespace

Result<BenchRun> RunOfflineBench(Engine* engine, const Workload& workload, const BenchRunOptions& options) {
  TANDEM_CHECK(!workload.requests.empty(), "a benchmark without requests");
  if (options.num_warmup > 0) {
    const auto count = std::min(workload.requests.size(), static_cast<size_t>(options.num_warmup));
    const std::vector<WorkloadRequest> warmup(workload.requests.begin(),
                                              workload.requests.begin() + static_cast<std::ptrdiff_t>(count));
    TANDEM_RETURN_IF_ERROR(CheckAnyCompleted(
        RunAll(engine, warmup, options.seed ^ kWarmupSeed, "warm-up", options.show_progress)));
  }
  BenchRun run;
  const EngineStats before = engine->Stats();
  run.records = RunAll(engine, workload.requests, options.seed, "offline", options.show_progress);
  run.engine = {.before = before, .after = engine->Stats()};
  TANDEM_RETURN_IF_ERROR(CheckAnyCompleted(run.records));
  const Clock::time_point start = run.records.front().start;
  Clock::time_point end = start;
  for (const RequestRecord& record : run.records) {
    if (record.output_tokens > 0) end = std::max(end, record.last_token);
  }
  run.duration_s = std::chrono::duration<double>(end - start).count();
  return run;
}

}  // namespace tandem
