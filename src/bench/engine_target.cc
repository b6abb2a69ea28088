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

EngineTarget::EngineTarget(Engine* engine, std::vector<RequestSpec> requests,
                           std::shared_ptr<boost::asio::io_context> io,
                           std::shared_ptr<RequestRecorder> recorder, RequestEndCallback on_end)
    : engine_(engine),
      requests_(std::move(requests)),
      ids_(requests_.size()),
      io_(std::move(io)),
      recorder_(std::move(recorder)),
      on_end_(std::move(on_end)) {}

void EngineTarget::Send(int64_t index) {
  const auto end_later = [io = io_, on_end = on_end_, index](RequestEnd end) {
    boost::asio::post(*io,
                      [on_end, index, end = std::move(end)]() mutable { on_end(index, std::move(end)); });
  };
  auto id = engine_->Submit(std::move(requests_[static_cast<size_t>(index)]),
                            [recorder = recorder_, end_later, index](const RequestOutput& output) {
                              if (!output.tokens.empty()) {
                                recorder->AddTokens(index, static_cast<int64_t>(output.tokens.size()),
                                                    output.cpu_tier, Clock::now());
                              }
                              if (output.finish_reason != FinishReason::kNone) end_later(EndOf(output));
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
