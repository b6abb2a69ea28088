#include "bench/engine_target.h"

#include <boost/asio/post.hpp>
#include <string>
#include <utility>

#include "bench/bench_request.h"

namespace tandem {
namespace {

using Kind = RequestEnd::Kind;

RequestEnd EndOf(const RequestOutput& output) {
  if (output.finish_reason == FinishReason::kCancelled) return {Kind::kCancelled, ""};
  std::string reason = ReasonOfFailure(output);
  return {reason.empty() ? Kind::kDone : Kind::kFailed, std::move(reason)};
}

}  // namespace

EngineTarget::EngineTarget(Engine* engine, const std::vector<WorkloadRequest>& requests,
                           std::shared_ptr<boost::asio::io_context> io,
                           std::shared_ptr<RequestRecorder> recorder, RequestEndCallback on_end)
    : engine_(engine),
      ids_(requests.size()),
      io_(std::move(io)),
      recorder_(std::move(recorder)),
      on_end_(std::move(on_end)) {
  requests_.reserve(requests.size());
  for (const WorkloadRequest& request : requests) requests_.push_back(MakeBenchRequest(request, {}));
}

void EngineTarget::SetPrompt(int64_t index, std::vector<int32_t> tokens) {
  requests_[static_cast<size_t>(index)].prompt_tokens = std::move(tokens);
}

void EngineTarget::Send(int64_t index) {
  RequestSpec& request = requests_[static_cast<size_t>(index)];
  const auto end_later = [io = io_, on_end = on_end_, index](RequestEnd end) {
    boost::asio::post(*io,
                      [on_end, index, end = std::move(end)]() mutable { on_end(index, std::move(end)); });
  };
  const auto answer = std::make_shared<std::vector<int32_t>>();
  answer->reserve(static_cast<size_t>(request.sampling.max_tokens));
  auto id = engine_->Submit(std::move(request), [recorder = recorder_, end_later, answer,
                                                 index](const RequestOutput& output) {
    if (!output.tokens.empty()) {
      recorder->AddTokens(index, static_cast<int64_t>(output.tokens.size()), output.cpu_tier, Clock::now());
      for (const SampledToken& token : output.tokens) answer->push_back(token.token);
    }
    if (output.finish_reason == FinishReason::kNone) return;
    RequestEnd end = EndOf(output);
    end.output_tokens = std::move(*answer);
    end.cached_tokens = output.num_cached_tokens;
    end_later(std::move(end));
  });
  if (id.ok()) {
    ids_[static_cast<size_t>(index)] = *id;
    return;
  }
  const bool rejected =
      id.error().code == ErrorCode::kResourceExhausted || id.error().code == ErrorCode::kUnavailable;
  end_later({rejected ? Kind::kRejected : Kind::kFailed, id.error().message});
}

void EngineTarget::Cancel(int64_t index) {
  engine_->Cancel(ids_[static_cast<size_t>(index)]);
}

}  // namespace tandem
