// The fields that /v1/completions and /v1/chat/completions share.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "server/field_reader.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxSequencesPerPrompt = 128;
constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxStopStringBytes = 1024;
constexpr size_t kMaxStopTokenIds = 1024;
constexpr size_t kMaxLogitBiasEntries = 4096;
constexpr size_t kMaxBadWords = 128;
constexpr size_t kMaxBadWordBytes = 256;
constexpr size_t kMaxRequestIdBytes = 128;
constexpr std::array<std::string_view, 6> kServiceTiers = {"auto",  "default",  "flex",
                                                           "scale", "priority", "fast"};
constexpr std::array<std::string_view, 2> kTruncationSides = {"left", "right"};

void ReadStop(FieldReader& reader, GenerationRequest* request) {
  const ordered_json* stop = reader.Find("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    request->stop.push_back(stop->get<std::string>());
  } else if (stop->is_array()) {
    if (stop->size() > kMaxStopStrings) {
      return reader.Fail("stop",
                         fmt::format("stop takes at most {} strings, got {}", kMaxStopStrings, stop->size()));
    }
    for (const ordered_json& item : *stop) {
      if (!item.is_string()) {
        return reader.Fail("stop", fmt::format("stop must be strings, got {}", JsonTypeName(item)));
      }
      request->stop.push_back(item.get<std::string>());
    }
  } else {
    return reader.Fail(
        "stop", fmt::format("stop must be a string or a list of strings, not {}", JsonTypeName(*stop)));
  }
  for (const std::string& text : request->stop) {
    if (text.empty()) return reader.Fail("stop", "stop strings must not be empty");
    if (text.size() > kMaxStopStringBytes) {
      return reader.Fail("stop", fmt::format("a stop string may have at most {} bytes", kMaxStopStringBytes));
    }
  }
}

void ReadLogitBias(FieldReader& reader, int64_t vocab_size, SamplingParams* sampling) {
  const ordered_json* bias = reader.Object("logit_bias");
  if (bias == nullptr) return;
  if (bias->size() > kMaxLogitBiasEntries) {
    return reader.Fail("logit_bias",
                       fmt::format("logit_bias takes at most {} entries", kMaxLogitBiasEntries));
  }
  for (const auto& [key, value] : bias->items()) {
    int64_t token = -1;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (failure != std::errc() || end != key.data() + key.size() || token < 0 || token >= vocab_size) {
      return reader.Fail("logit_bias", fmt::format("logit_bias keys must be token ids below {}, got \"{}\"",
                                                   vocab_size, key));
    }
    if (!value.is_number() || !(value.get<double>() >= -100.0 && value.get<double>() <= 100.0)) {
      return reader.Fail("logit_bias",
                         fmt::format("logit_bias values must be numbers in [-100, 100], token {} has {}", key,
                                     value.is_number() ? value.dump() : std::string(JsonTypeName(value))));
    }
    sampling->logit_bias.emplace_back(static_cast<int32_t>(token), value.get<float>());
  }
}

void ReadSeed(FieldReader& reader, SamplingParams* sampling) {
  const ordered_json* seed = reader.Find("seed");
  if (seed == nullptr) return;
  if (!seed->is_number_integer()) {
    return reader.Fail("seed",
                       fmt::format("seed must be an integer of 64 bits, not {}", JsonTypeName(*seed)));
  }
  sampling->seed =
      seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(seed->get<int64_t>());
}

void ReadStream(FieldReader& reader, GenerationRequest* request) {
  request->stream = reader.Bool("stream").value_or(false);
  const ordered_json* options = reader.Object("stream_options");
  if (options == nullptr) return;
  if (!request->stream) {
    return reader.Fail("stream_options", "stream_options is only allowed with stream");
  }
  FieldReader option_reader(*options, "stream_options.");
  request->include_usage = option_reader.Bool("include_usage").value_or(false);
  request->continuous_usage =
      option_reader.Bool("continuous_usage_stats").value_or(false) && request->include_usage;
  if (option_reader.error()) reader.Fail(option_reader.error()->param, option_reader.error()->message);
}

// The other tiers of the API are about prices: served as "default", and the answer says so.
void ReadServiceTier(FieldReader& reader, GenerationRequest* request) {
  const auto tier = reader.OneOf("service_tier", kServiceTiers);
  if (!tier) return;
  request->names_service_tier = true;
  request->flexible = *tier == "flex";
}

// cache_salt is vLLM's, cache_prompt llama.cpp's.
void ReadCacheSharing(FieldReader& reader, CacheSharing* sharing) {
  if (auto salt = reader.String("cache_salt")) {
    if (salt->empty()) return reader.Fail("cache_salt", "cache_salt must not be empty: leave it out");
    sharing->salt = std::move(*salt);
  }
  sharing->alone = !reader.Bool("cache_prompt").value_or(true);
}

void ReadAllowedTokens(FieldReader& reader, int64_t vocab_size, SamplingParams* sampling) {
  auto ids = reader.TokenIds("allowed_token_ids", vocab_size);
  if (!ids) return;
  if (ids->empty()) return reader.Fail("allowed_token_ids", "allowed_token_ids must not be empty");
  sampling->allowed_token_ids = std::move(*ids);
}

// A word is banned at the beginning of a text and behind a space, which are other tokens.
void AddBadWord(const std::string& word, const Tokenizer& tokenizer,
                std::vector<std::vector<int32_t>>* bad_words) {
  const std::string trimmed = word.substr(word.find_first_not_of(' '));
  for (const std::string_view space : {"", " "}) {
    std::vector<int32_t> tokens = tokenizer.Encode(std::string(space) + trimmed, false);
    const bool is_new = std::find(bad_words->begin(), bad_words->end(), tokens) == bad_words->end();
    if (!tokens.empty() && is_new) bad_words->push_back(std::move(tokens));
  }
}

void ReadBadWords(FieldReader& reader, const Tokenizer& tokenizer, SamplingParams* sampling) {
  const ordered_json* words = reader.Find("bad_words");
  if (words == nullptr) return;
  if (!words->is_array() || words->size() > kMaxBadWords) {
    return reader.Fail("bad_words",
                       fmt::format("bad_words must be a list of at most {} strings", kMaxBadWords));
  }
  for (const ordered_json& word : *words) {
    if (!word.is_string()) {
      return reader.Fail("bad_words", fmt::format("bad_words must be strings, got {}", JsonTypeName(word)));
    }
    const auto& text = word.get_ref<const std::string&>();
    if (text.find_first_not_of(' ') == std::string::npos || text.size() > kMaxBadWordBytes) {
      return reader.Fail("bad_words",
                         fmt::format("a bad word has 1 to {} bytes, and not spaces only", kMaxBadWordBytes));
    }
    AddBadWord(text, tokenizer, &sampling->bad_words);
  }
}

void ReadPromptLogprobs(FieldReader& reader, GenerationRequest* request) {
  const auto count = reader.Int("prompt_logprobs", 0, kMaxTopLogprobs);
  if (!count) return;
  if (request->stream) {
    return reader.Fail("prompt_logprobs", "prompt_logprobs are not there in streams: leave out stream");
  }
  request->num_prompt_logprobs = static_cast<int32_t>(*count);
  request->sampling.num_prompt_top_logprobs = request->num_prompt_logprobs;
}

void ReadRequestId(FieldReader& reader, GenerationRequest* request) {
  const auto id = reader.String("request_id");
  if (!id) return;
  const bool is_plain = std::all_of(id->begin(), id->end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
  if (id->empty() || id->size() > kMaxRequestIdBytes || !is_plain) {
    return reader.Fail(
        "request_id", fmt::format("request_id must be 1 to {} letters, digits and -_.:", kMaxRequestIdBytes));
  }
  request->request_id = *id;
}

void ReadPenalties(FieldReader& reader, SamplingParams* sampling) {
  constexpr double kMaxFloat = std::numeric_limits<float>::max();
  if (const auto value = reader.Number("presence_penalty", -2, 2)) {
    sampling->presence_penalty = static_cast<float>(*value);
  }
  if (const auto value = reader.Number("frequency_penalty", -2, 2)) {
    sampling->frequency_penalty = static_cast<float>(*value);
  }
  // The second is llama.cpp's name.
  for (const std::string_view name : {"repetition_penalty", "repeat_penalty"}) {
    if (const auto value = reader.Number(name, 0, kMaxFloat, true)) {
      sampling->repetition_penalty = static_cast<float>(*value);
    }
  }
}

void ReadShape(FieldReader& reader, SamplingParams* sampling) {
  if (const auto value = reader.Number("temperature", 0, 2)) {
    sampling->temperature = static_cast<float>(*value);
  }
  if (const auto value = reader.Number("top_p", 0, 1, true)) sampling->top_p = static_cast<float>(*value);
  if (const auto value = reader.Number("min_p", 0, 1)) sampling->min_p = static_cast<float>(*value);
  if (const auto value = reader.Int("top_k", -1, std::numeric_limits<int32_t>::max())) {
    sampling->top_k = static_cast<int32_t>(*value);
  }
}

}  // namespace

std::optional<ApiError> ParseSampling(const ordered_json& body, const ModelContext& model,
                                      GenerationRequest* request) {
  FieldReader reader(body);
  const int64_t vocab_size = model.tokenizer->vocab_size();
  SamplingParams& sampling = request->sampling;
  sampling.temperature = model.defaults.temperature.value_or(1.0F);
  sampling.top_p = model.defaults.top_p.value_or(1.0F);
  sampling.top_k = model.defaults.top_k.value_or(0);
  sampling.repetition_penalty = model.defaults.repetition_penalty.value_or(1.0F);
  ReadShape(reader, &sampling);
  ReadPenalties(reader, &sampling);
  ReadSeed(reader, &sampling);
  ReadStop(reader, request);
  if (auto ids = reader.TokenIds("stop_token_ids", vocab_size)) {
    if (ids->size() > kMaxStopTokenIds) {
      reader.Fail("stop_token_ids", fmt::format("stop_token_ids takes at most {} ids", kMaxStopTokenIds));
    }
    sampling.stop_token_ids = std::move(*ids);
  }
  ReadLogitBias(reader, vocab_size, &sampling);
  sampling.ignore_eos = reader.Bool("ignore_eos").value_or(false);
  sampling.min_tokens = reader.Int("min_tokens", 0, kMaxInt64).value_or(0);
  request->skip_special_tokens = reader.Bool("skip_special_tokens").value_or(true);
  request->include_stop_str_in_output = reader.Bool("include_stop_str_in_output").value_or(false);
  request->n = reader.Int("n", 1, kMaxSequencesPerPrompt).value_or(1);
  if (const auto best_of = reader.Int("best_of", 1, kMaxInt64); best_of && *best_of != request->n) {
    reader.Fail("best_of", fmt::format("best_of must be equal to n ({}), got {}", request->n, *best_of));
  }
  ReadStream(reader, request);
  ReadServiceTier(reader, request);
  ReadCacheSharing(reader, &request->cache_sharing);
  ReadAllowedTokens(reader, vocab_size, &sampling);
  ReadBadWords(reader, *model.tokenizer, &sampling);
  ReadTruncation(reader, &request->truncation);
  ReadPromptLogprobs(reader, request);
  ReadRequestId(reader, request);
  request->return_token_ids = reader.Bool("return_token_ids").value_or(false);
  request->return_tokens_as_token_ids = reader.Bool("return_tokens_as_token_ids").value_or(false);
  return reader.error();
}

void ReadTruncation(FieldReader& reader, GenerationRequest::Truncation* truncation) {
  truncation->num_tokens = reader.Int("truncate_prompt_tokens", -1, kMaxInt64);
  if (truncation->num_tokens == 0) {
    reader.Fail("truncate_prompt_tokens",
                "truncate_prompt_tokens must be at least 1, or -1 for as many as fit");
  }
  if (const auto side = reader.OneOf("truncation_side", kTruncationSides)) {
    truncation->keeps_first = *side == "right";
  }
}

std::optional<ApiError> CheckModelName(const ordered_json& body, const ModelContext& model) {
  FieldReader reader(body);
  const auto name = reader.String("model");
  if (reader.error()) return reader.error();
  if (name && !name->empty() && !model.HasName(*name)) return ModelNotFound(*name);
  return std::nullopt;
}

std::optional<ApiError> JudgeBody(const ordered_json& body, RequestRoute route, const ModelContext& model,
                                  std::vector<std::string>* ignored_fields) {
  if (!body.is_object()) {
    return InvalidRequest("",
                          fmt::format("the request body must be a JSON object, not {}", JsonTypeName(body)));
  }
  return JudgeFields(body, route, model.reject_unknown_fields, ignored_fields);
}

std::optional<ApiError> CheckBody(const ordered_json& body, const ModelContext& model,
                                  GenerationRequest* request) {
  if (!model.generates) {
    return ApiError{.status = 400,
                    .message = "this model continues no texts: it makes embeddings (/v1/embeddings)",
                    .param = "model",
                    .code = "unsupported"};
  }
  const bool is_chat = request->kind == GenerationRequest::Kind::kChat;
  if (auto error = JudgeBody(body, is_chat ? RequestRoute::kChat : RequestRoute::kCompletions, model,
                             &request->ignored_fields)) {
    return error;
  }
  return CheckModelName(body, model);
}

bool TruncatePrompt(const GenerationRequest& request, std::optional<int64_t> max_tokens,
                    const ModelContext& model, GenerationRequest::Prompt* prompt) {
  const GenerationRequest::Truncation& truncation = request.truncation;
  if (!truncation.num_tokens) return false;
  const int64_t fitting = model.max_model_len - std::min(model.max_model_len, max_tokens.value_or(1));
  const int64_t wanted = *truncation.num_tokens < 0 ? fitting : *truncation.num_tokens;
  const int64_t num_dropped = std::ssize(prompt->tokens) - std::max<int64_t>(wanted, 1);
  if (num_dropped <= 0) return false;
  auto begin = prompt->tokens.end() - num_dropped;
  if (!truncation.keeps_first) {
    const bool has_room = prompt->num_added_tokens < std::max<int64_t>(wanted, 1);
    begin = prompt->tokens.begin() + (has_room ? prompt->num_added_tokens : 0);
  }
  prompt->tokens.erase(begin, begin + num_dropped);
  return true;
}

std::optional<ApiError> FitContext(std::optional<int64_t> max_tokens, int64_t default_max_tokens,
                                   const ModelContext& model, GenerationRequest::Prompt* prompt) {
  const auto num_prompt_tokens = static_cast<int64_t>(prompt->tokens.size());
  const int64_t room = model.max_model_len - num_prompt_tokens;
  if (room < 1 || max_tokens.value_or(1) > room) {
    const std::string requested =
        max_tokens
            ? fmt::format(
                  "{} tokens ({} in the prompt; {} for the completion)",
                  num_prompt_tokens > kMaxInt64 - *max_tokens ? kMaxInt64 : num_prompt_tokens + *max_tokens,
                  num_prompt_tokens, *max_tokens)
            : fmt::format("{} tokens in the prompt, which leaves none for the completion", num_prompt_tokens);
    return ApiError{.status = 400,
                    .message = fmt::format("This model's maximum context length is {} tokens, however you "
                                           "requested {}. Please shorten the prompt or the completion.",
                                           model.max_model_len, requested),
                    .param = room < 1 ? "prompt" : "max_tokens",
                    .code = "context_length_exceeded"};
  }
  prompt->max_tokens = max_tokens ? *max_tokens : std::min(default_max_tokens, room);
  return std::nullopt;
}

}  // namespace tandem
