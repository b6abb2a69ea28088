#include "server/embedding_job.h"

#include <utility>

#include "base/seconds_between.h"
#include "server/request_fields.h"

namespace tandem {
namespace {

using EmbeddingTime = std::chrono::steady_clock::time_point;

// Inputs of a request in the engine at a time.
constexpr size_t kMaxInputsInFlight = 64;

}  // namespace

EmbeddingJob::EmbeddingJob(uint64_t id, Environment environment, EmbeddingRequest request,
                           std::shared_ptr<HttpExchange> exchange, EmbeddingTime arrival)
    : id_(id),
      environment_(std::move(environment)),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      arrival_(arrival),
      inputs_(request_.inputs.size()),
      embeddings_(request_.inputs.size()) {
  environment_.trace.Accept(request_, environment_.served_model_name);
}

std::optional<Error> EmbeddingJob::Submit(size_t input) {
  RequestSpec spec{.prompt_tokens = request_.inputs[input], .pooling = environment_.pooling};
  auto submitted = environment_.engine->Submit(
      std::move(spec), [outputs = environment_.outputs, id = id_, input](RequestOutput output) {
        outputs->Push({id, input, std::move(output), std::chrono::steady_clock::now()});
      });
  if (!submitted.ok()) return submitted.error();
  inputs_[input].request_id = *submitted;
  return std::nullopt;
}

void EmbeddingJob::SubmitMore() {
  while (num_submitted_ < inputs_.size() && num_submitted_ - num_ended_ < kMaxInputsInFlight) {
    if (const auto error = Submit(num_submitted_)) {
      // With some in the engine the queue will have room again.
      const bool comes_again = error->code == ErrorCode::kResourceExhausted && num_submitted_ > num_ended_;
      if (!comes_again) Fail(FromError(*error));
      return;
    }
    ++num_submitted_;
  }
}

void EmbeddingJob::OnOutput(size_t input, RequestOutput output, EmbeddingTime time) {
  if (done_ || output.finish_reason == FinishReason::kNone) return;
  environment_.trace.OnOutput(input, output, time);
  if (output.finish_reason != FinishReason::kStop) {
    ObserveEnd(input, output.finish_reason == FinishReason::kError ? "error" : "abort", &output, time);
    return Fail(output.error ? FromError(*output.error)
                             : Unavailable("the server stopped before the answer was complete", "cancelled"));
  }
  ObserveEnd(input, "stop", &output, time);
  embeddings_[input] = std::move(output.embedding);
  Shorten(request_, &embeddings_[input]);
  if (num_ended_ == inputs_.size()) return Answer();
  SubmitMore();
}

void EmbeddingJob::ObserveEnd(size_t input, std::string_view reason, const RequestOutput* output,
                              EmbeddingTime time) {
  inputs_[input].ended = true;
  ++num_ended_;
  FinishedSequence finished{.reason = reason,
                            .e2e_seconds = SecondsBetween(arrival_, time),
                            .phases = {},
                            .prompt_tokens = std::ssize(request_.inputs[input])};
  if (output != nullptr && output->first_scheduled && !output->embedding.empty()) {
    finished.phases = SequencePhases{.queue_seconds = SecondsBetween(arrival_, *output->first_scheduled),
                                     .prefill_seconds = SecondsBetween(*output->first_scheduled, time)};
  }
  environment_.metrics->ObserveFinished(finished);
  environment_.trace.EndSequence(input, reason, 0);
}

void EmbeddingJob::End() {
  done_ = true;
  const EmbeddingTime now = std::chrono::steady_clock::now();
  for (size_t i = 0; i < num_submitted_; ++i) {
    if (inputs_[i].ended) continue;
    environment_.engine->Cancel(inputs_[i].request_id);
    ObserveEnd(i, "abort", nullptr, now);
  }
  exchange_->AddLogNumber("prompt_tokens", request_.num_tokens());
  exchange_->AddLogNumber("completion_tokens", 0);
}

void EmbeddingJob::Answer() {
  End();
  environment_.trace.Finish();
  HttpResponse response;
  response.body = EmbeddingBody(request_, environment_.served_model_name, embeddings_);
  if (!request_.ignored_fields.empty())
    response.headers.push_back({"X-Tandem-Ignored-Fields", IgnoredFieldsHeader(request_.ignored_fields)});
  exchange_->Respond(std::move(response));
}

void EmbeddingJob::Fail(const ApiError& error) {
  if (done_) return;
  End();
  environment_.trace.Fail(error);
  exchange_->Respond(request_.error_response(error));
}

void EmbeddingJob::Abort() {
  if (done_) return;
  End();
  environment_.trace.Abort();
}

}  // namespace tandem
