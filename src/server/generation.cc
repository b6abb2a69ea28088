#include "server/generation.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/seconds_between.h"
#include "server/api_error.h"
#include "server/openai_writer.h"
#include "server/request_fields.h"
#include "server/sse.h"

namespace tandem {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

ResponseIdentity MakeIdentity(const GenerationRequest& request, const std::string& model) {
  return {.kind = request.kind,
          .id = ResponseId(request),
          .created = static_cast<int64_t>(std::time(nullptr)),
          .model = model};
}

std::unique_ptr<AnswerWriter> MakeWriter(const AnswerWriterContext& context) {
  if (context.request.make_writer) return context.request.make_writer(context);
  return std::make_unique<OpenAiWriter>(context);
}

}  // namespace

Generation::Generation(uint64_t id, Environment environment, GenerationRequest request,
                       std::shared_ptr<HttpExchange> exchange, TimePoint arrival)
    : id_(id),
      environment_(std::move(environment)),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      arrival_(arrival),
      identity_(MakeIdentity(request_, environment_.served_model_name)),
      writer_(MakeWriter({request_, environment_.engine->tokenizer(), identity_})) {
  const auto n = static_cast<size_t>(request_.n);
  const size_t num_choices = request_.prompts.size() * n;
  sequences_.resize(num_choices);
  streams_.reserve(num_choices);
  for (size_t i = 0; i < num_choices; ++i) {
    sequences_[i].prompt_index = i / n;
    streams_.emplace_back(&environment_.engine->tokenizer(), &request_, i / n);
  }
  prompts_.resize(request_.prompts.size(), {.num_unended = request_.n});
  if (!request_.stream) choices_.resize(num_choices);
  environment_.trace.Accept(request_, identity_);
}

void Generation::Start() {
  if (const auto error = SubmitAll()) return Fail(FromError(*error));
  if (request_.stream) {
    HttpResponse head{.content_type = std::string(kSseContentType),
                      .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                      .body = {}};
    NameIgnoredFields(&head);
    exchange_->StartStream(std::move(head));
    Send(writer_->BeginStream());
  }
}

std::optional<Error> Generation::SubmitAll() {
  const std::string cache_salt = EngineCacheSalt(request_.cache_sharing);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    Sequence& sequence = sequences_[i];
    const GenerationRequest::Prompt& prompt = request_.prompts[sequence.prompt_index];
    RequestSpec spec{.prompt_tokens = prompt.tokens,
                     .sampling = request_.sampling,
                     .flexible = request_.flexible,
                     .grammar = request_.grammar,
                     .cache_salt = cache_salt};
    spec.sampling.max_tokens = prompt.max_tokens;
    if (spec.sampling.seed) *spec.sampling.seed += i % static_cast<size_t>(request_.n);
    auto submitted = environment_.engine->Submit(
        std::move(spec), [outputs = environment_.outputs, id = id_, i](RequestOutput output) {
          outputs->Push({id, i, std::move(output), std::chrono::steady_clock::now()});
        });
    if (!submitted.ok()) {
      // What was never submitted needs no cancelling.
      sequences_.resize(i);
      return submitted.error();
    }
    sequence.request_id = *submitted;
  }
  return std::nullopt;
}

void Generation::ObserveTokens(Sequence* sequence, const RequestOutput& output, int64_t num_tokens,
                               TimePoint time) {
  sequence->first_scheduled = output.first_scheduled;
  if (output.tokens.empty()) return;
  if (num_tokens > 0) {
    environment_.metrics->CountGenerationTokens(num_tokens);
    if (sequence->last_token) {
      environment_.metrics->ObserveInterTokenLatency(SecondsBetween(*sequence->last_token, time));
    } else {
      environment_.metrics->ObserveTimeToFirstToken(SecondsBetween(arrival_, time));
    }
  }
  if (!sequence->first_token) sequence->first_token = time;
  sequence->last_token = time;
}

void Generation::OnOutput(size_t choice_index, const RequestOutput& output, TimePoint time) {
  if (done_ || choice_index >= sequences_.size() || sequences_[choice_index].ended) return;
  environment_.trace.OnOutput(choice_index, output, time);
  CompletionStream& stream = streams_[choice_index];
  const int64_t num_tokens_before = stream.num_output_tokens();
  CompletionStream::Delta delta = stream.Append(output);
  ObserveTokens(&sequences_[choice_index], output, stream.num_output_tokens() - num_tokens_before, time);
  if (delta.finished && stream.finish_reason().empty()) {
    const bool failed = output.finish_reason == FinishReason::kError;
    EndSequence(choice_index, failed ? "error" : "abort");
    ApiError error = output.error
                         ? FromError(*output.error)
                         : Unavailable("the server stopped before the answer was complete", "cancelled");
    return Fail(error);
  }
  if (delta.cancel_in_engine) environment_.engine->Cancel(sequences_[choice_index].request_id);
  if (delta.finished) EndSequence(choice_index, stream.finish_reason());
  if (request_.stream) {
    Send(writer_->Delta(choice_index, delta, stream, !output.tokens.empty()));
  } else {
    choices_[choice_index].Append(std::move(delta));
  }
  FinishIfComplete();
}

void Generation::EndSequence(size_t choice_index, std::string_view reason) {
  Sequence& sequence = sequences_[choice_index];
  sequence.ended = true;
  ++num_ended_;
  const TimePoint end = sequence.last_token.value_or(std::chrono::steady_clock::now());
  const GenerationRequest::Prompt& prompt = request_.prompts[sequence.prompt_index];
  FinishedSequence finished{.reason = reason,
                            .e2e_seconds = SecondsBetween(arrival_, end),
                            .phases = {},
                            .prompt_tokens = static_cast<int64_t>(prompt.tokens.size()),
                            .generation_tokens = streams_[choice_index].num_output_tokens(),
                            .max_tokens = request_.discard_output ? 0 : prompt.max_tokens};
  if (sequence.first_scheduled && sequence.first_token) {
    finished.phases =
        SequencePhases{.queue_seconds = SecondsBetween(arrival_, *sequence.first_scheduled),
                       .prefill_seconds = SecondsBetween(*sequence.first_scheduled, *sequence.first_token),
                       .decode_seconds = SecondsBetween(*sequence.first_token, end)};
  }
  environment_.metrics->ObserveFinished(finished);
  environment_.trace.EndSequence(choice_index, reason, finished.generation_tokens);
  PromptProgress& progress = prompts_[sequence.prompt_index];
  progress.max_generation_tokens = std::max(progress.max_generation_tokens, finished.generation_tokens);
  if (--progress.num_unended > 0) return;
  environment_.metrics->ObserveFinished(
      FinishedPrompt{.n = request_.n, .max_generation_tokens = progress.max_generation_tokens});
}

void Generation::Send(const std::string& events) {
  if (!events.empty()) exchange_->Send(events);
}

void Generation::FinishIfComplete() {
  // Sending may have found the client gone.
  if (done_ || num_ended_ < sequences_.size()) return;
  done_ = true;
  const Usage usage = ReportUsage();
  environment_.trace.Finish();
  if (request_.stream) {
    Send(writer_->EndStream(usage));
    exchange_->EndStream();
    return;
  }
  HttpResponse response;
  response.body = writer_->Body(choices_, streams_, usage);
  NameIgnoredFields(&response);
  exchange_->Respond(std::move(response));
}

void Generation::NameIgnoredFields(HttpResponse* response) const {
  if (request_.ignored_fields.empty()) return;
  response->headers.push_back({"X-Tandem-Ignored-Fields", IgnoredFieldsHeader(request_.ignored_fields)});
}

void Generation::Fail(const ApiError& error) {
  if (done_) return;
  done_ = true;
  CancelUnfinished("abort");
  ReportUsage();
  environment_.trace.Fail(error);
  // Before the stream has begun Respond answers; afterwards it has no effect, and Send only then has one.
  if (request_.stream) Send(writer_->FailStream(error));
  exchange_->EndStream();
  exchange_->Respond(request_.error_response(error));
}

void Generation::Abort() {
  if (done_) return;
  done_ = true;
  CancelUnfinished("abort");
  ReportUsage();
  environment_.trace.Abort();
}

void Generation::CancelUnfinished(std::string_view reason) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].ended) continue;
    if (sequences_[i].request_id != 0) environment_.engine->Cancel(sequences_[i].request_id);
    EndSequence(i, reason);
  }
}

Usage Generation::ReportUsage() {
  const Usage usage = CountUsage(streams_, request_.n);
  exchange_->AddLogNumber("prompt_tokens", usage.prompt_tokens);
  exchange_->AddLogNumber("cached_tokens", usage.cached_tokens);
  exchange_->AddLogNumber("completion_tokens", usage.completion_tokens);
  environment_.trace.SetCachedTokens(usage.cached_tokens);
  return usage;
}

}  // namespace tandem
