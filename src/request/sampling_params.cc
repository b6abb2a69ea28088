#include "request/sampling_params.h"

#include <algorithm>
#include <cmath>

#include "base/param_error.h"

namespace tandem {
namespace {

// Also false for NaN.
bool InRange(float value, float low, float high) {
  return value >= low && value <= high;
}

}  // namespace

Status SamplingParams::Validate(int64_t vocab_size) const {
  if (max_tokens < 1)
    return MakeParamError(ErrorCode::kInvalidArgument, "max_tokens", "max_tokens must be at least 1, got {}",
                          max_tokens);
  if (min_tokens < 0 || min_tokens > max_tokens) {
    return MakeParamError(ErrorCode::kInvalidArgument, "min_tokens",
                          "min_tokens must be between 0 and max_tokens ({}), got {}", max_tokens, min_tokens);
  }
  if (!InRange(temperature, 0.0F, 2.0F)) {
    return MakeParamError(ErrorCode::kInvalidArgument, "temperature",
                          "temperature must be between 0 and 2, got {}", temperature);
  }
  if (!(top_p > 0.0F && top_p <= 1.0F))
    return MakeParamError(ErrorCode::kInvalidArgument, "top_p", "top_p must be in (0, 1], got {}", top_p);
  if (top_k < -1)
    return MakeParamError(ErrorCode::kInvalidArgument, "top_k",
                          "top_k must be at least 1, or 0 or -1 for all, got {}", top_k);
  if (!InRange(min_p, 0.0F, 1.0F))
    return MakeParamError(ErrorCode::kInvalidArgument, "min_p", "min_p must be between 0 and 1, got {}",
                          min_p);
  if (!InRange(presence_penalty, -2.0F, 2.0F)) {
    return MakeParamError(ErrorCode::kInvalidArgument, "presence_penalty",
                          "presence_penalty must be between -2 and 2, got {}", presence_penalty);
  }
  if (!InRange(frequency_penalty, -2.0F, 2.0F)) {
    return MakeParamError(ErrorCode::kInvalidArgument, "frequency_penalty",
                          "frequency_penalty must be between -2 and 2, got {}", frequency_penalty);
  }
  if (!(repetition_penalty > 0.0F) || !std::isfinite(repetition_penalty)) {
    return MakeParamError(ErrorCode::kInvalidArgument, "repetition_penalty",
                          "repetition_penalty must be positive, got {}", repetition_penalty);
  }
  for (const int32_t token : stop_token_ids) {
    if (token < 0 || token >= vocab_size) {
      return MakeParamError(ErrorCode::kInvalidArgument, "stop_token_ids",
                            "stop token {} is outside the vocabulary of {}", token, vocab_size);
    }
  }
  for (const int32_t token : allowed_token_ids) {
    if (token < 0 || token >= vocab_size) {
      return MakeParamError(ErrorCode::kInvalidArgument, "allowed_token_ids",
                            "allowed token {} is outside the vocabulary of {}", token, vocab_size);
    }
  }
  for (const std::vector<int32_t>& word : bad_words) {
    const bool is_valid = !word.empty() && std::all_of(word.begin(), word.end(), [&](int32_t token) {
      return token >= 0 && token < vocab_size;
    });
    if (!is_valid) {
      return MakeParamError(ErrorCode::kInvalidArgument, "bad_words",
                            "a bad word is empty or has a token outside the vocabulary of {}", vocab_size);
    }
  }
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return MakeParamError(ErrorCode::kInvalidArgument, "logit_bias",
                            "token {} is outside the vocabulary of {}", token, vocab_size);
    }
    if (!InRange(bias, -100.0F, 100.0F)) {
      return MakeParamError(ErrorCode::kInvalidArgument, "logit_bias",
                            "the bias of token {} must be between -100 and 100, got {}", token, bias);
    }
  }
  if (num_top_logprobs < -1 || num_top_logprobs > kMaxTopLogprobs) {
    return MakeParamError(ErrorCode::kInvalidArgument, "logprobs", "at most {} log-probabilities, got {}",
                          kMaxTopLogprobs, num_top_logprobs);
  }
  if (num_prompt_top_logprobs < -1 || num_prompt_top_logprobs > kMaxTopLogprobs) {
    return MakeParamError(ErrorCode::kInvalidArgument, "logprobs", "at most {} log-probabilities, got {}",
                          kMaxTopLogprobs, num_prompt_top_logprobs);
  }
  return {};
}

}  // namespace tandem
