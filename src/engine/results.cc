#include "engine/results.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/grammar_masks.h"

namespace tandem {

FinishReason Results::ReasonToFinish(const Request& request, int32_t token) const {
  const bool ends =
      std::find(request.end_tokens.begin(), request.end_tokens.end(), token) != request.end_tokens.end();
  const auto num_output = static_cast<int64_t>(request.output_tokens.size());
  // Before min_tokens an end token is drawn only where a grammar has nothing else.
  if (ends && (num_output > request.sampling.min_tokens || request.grammar != nullptr))
    return FinishReason::kStop;
  return books_->EndsByLength(request, num_output) ? FinishReason::kLength : FinishReason::kNone;
}

void Results::TakeToken(Request* request, SampledToken token, RequestOutput* output) {
  EngineStats& stats = counters_->stats();
  books_->TakeToken(request, token.token);
  ++stats.generation_tokens;
  output->cpu_tier = kv_->tier_of(request->id) == Tier::kCpu;
  if (output->cpu_tier) ++stats.cpu_tier_tokens;
  output->finish_reason = ReasonToFinish(*request, token.token);
  if (output->finish_reason == FinishReason::kStop) output->stop_token_id = token.token;
  output->tokens.push_back(std::move(token));
}

void Results::TakePooled(Request* request, const SequenceResult& result, RequestOutput* output) {
  const bool first = *request->pooling == Pooling::kFirst;
  request->pooled.Add(*request->pooling, first ? 0 : result.num_computed - result.num_pooled_rows,
                      result.num_pooled_rows, result.pooled_rows);
  if (result.tokens.empty()) return;  // of the last row one was drawn
  output->cpu_tier = kv_->tier_of(request->id) == Tier::kCpu;
  output->embedding = request->pooled.Mean();
  output->finish_reason = FinishReason::kStop;
}

void Results::CountComputed(const Request& request, int64_t num_computed) {
  EngineStats& stats = counters_->stats();
  const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
  // Its first.
  if (request.prefix_root && request.num_ever_computed == 0) {
    stats.prefix_queried_tokens += static_cast<uint64_t>(prompt_len);
    stats.prefix_hit_tokens += static_cast<uint64_t>(request.num_cached_tokens);
  }
  const int64_t known = std::max(request.num_computed_tokens, request.num_ever_computed);
  stats.prompt_tokens +=
      static_cast<uint64_t>(std::max<int64_t>(0, std::min(num_computed, prompt_len) - known));
  stats.recomputed_tokens += static_cast<uint64_t>(
      std::max<int64_t>(0, std::min(num_computed, request.num_ever_computed) - request.num_computed_tokens));
}

void Results::Take(SequenceResult result) {
  Request& request = books_->At(result.sequence);
  CountComputed(request, result.num_computed);
  request.num_reported_prompt_logprobs += static_cast<int64_t>(result.prompt_logprobs.size());
  books_->TakeComputed(&request, result.num_computed);

  RequestOutput output;
  output.id = request.id;
  output.first_scheduled = request.first_scheduled;
  output.num_cached_tokens = request.num_cached_tokens;
  output.prompt_logprobs = std::move(result.prompt_logprobs);
  const bool grammar_failed = request.grammar != nullptr && request.grammar->failed();
  if (grammar_failed) {
    output.finish_reason = FinishReason::kError;
    output.error = MakeError(ErrorCode::kUnavailable, "the grammar refused a token of its own mask");
    result.tokens.clear();
  } else if (request.pooling) {
    TakePooled(&request, result, &output);
    result.tokens.clear();
  }
  for (SampledToken& token : result.tokens) {
    TakeToken(&request, std::move(token), &output);
    if (output.finish_reason != FinishReason::kNone) break;
  }
  if (output.finish_reason != FinishReason::kNone) {
    books_->CountEnd(request, static_cast<int64_t>(request.output_tokens.size()));
    // Blocks are free before the client hears of the end.
    const RequestId id = output.id;
    outputs_.push_back({std::move(request.callback), std::move(output)});
    forget_(id);
  } else if (!output.tokens.empty() || !output.prompt_logprobs.empty()) {
    outputs_.push_back({nullptr, std::move(output)});
  }
}

void Results::Deliver() {
  for (Output& each : outputs_) {
    if (each.last_callback) {
      each.last_callback(std::move(each.output));
    } else {
      books_->At(each.output.id).callback(std::move(each.output));
    }
  }
  outputs_.clear();
}

void Results::End(RequestId id, FinishReason reason, std::optional<Error> error) {
  RequestOutput output;
  output.id = id;
  output.finish_reason = reason;
  output.error = std::move(error);
  Request& request = books_->At(id);
  output.first_scheduled = request.first_scheduled;
  const OutputCallback callback = std::move(request.callback);
  forget_(id);
  callback(std::move(output));
}

}  // namespace tandem
