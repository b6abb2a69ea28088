#include "server/openai_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "server/json_text.h"
#include "server/new_ids.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// A float that JSON can carry: a probability of zero has no finite logarithm.
ordered_json LogprobValue(float logprob) {
  constexpr double kLowest = -9999.0;
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kLowest;
}

// The text of a token on its own. Bytes that are no text by themselves are spelled out, so that they stay
// apart.
std::string TokenText(const std::string& bytes) {
  if (IsValidUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

ordered_json ChatToken(const TokenNames& names, int32_t token, float logprob) {
  const std::string bytes = names.tokenizer->TokenBytes(token);
  ordered_json byte_values = ordered_json::array();
  for (const char c : bytes) byte_values.push_back(static_cast<unsigned char>(c));
  return {{"token", names.Of(token)}, {"logprob", LogprobValue(logprob)}, {"bytes", std::move(byte_values)}};
}

ordered_json StopReason(const CompletionStream& stream) {
  if (stream.stop_string()) return *stream.stop_string();
  if (stream.stop_token()) return *stream.stop_token();
  return nullptr;
}

std::string_view ServiceTier(const GenerationRequest& request) {
  return request.flexible ? "flex" : "default";
}

ordered_json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

ordered_json LogprobsJson(const GenerationRequest& request, const Tokenizer& tokenizer,
                          const std::vector<TokenRecord>& records) {
  if (request.num_logprobs < 0) return nullptr;
  const TokenNames names{&tokenizer, request.return_tokens_as_token_ids};
  return request.kind == GenerationRequest::Kind::kChat
             ? ChatLogprobs(names, records, request.num_logprobs)
             : CompletionLogprobs(names, records, request.num_logprobs);
}

// What is asked for about the prompt: a choice of a completion has it, or the whole answer of a chat.
void AddPromptFields(const GenerationRequest& request, const Tokenizer& tokenizer,
                     const CompletionStream& stream, ordered_json* object) {
  if (request.num_prompt_logprobs >= 0) {
    (*object)["prompt_logprobs"] = PromptLogprobs({&tokenizer, request.return_tokens_as_token_ids},
                                                  stream.prompt_logprobs(), request.num_prompt_logprobs);
  }
  if (request.return_token_ids) (*object)["prompt_token_ids"] = stream.prompt_tokens();
}

ordered_json MessageJson(const Choice& choice) {
  ordered_json message = {{"role", "assistant"}, {"content", choice.text}};
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (choice.tool_calls.empty()) return message;
  if (choice.text.empty()) message["content"] = nullptr;
  ordered_json& calls = message["tool_calls"] = ordered_json::array();
  for (const ToolCall& call : choice.tool_calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

// The "delta" of a chunk: text, reasoning, and an item for each call that goes on. num_calls_before: that had
// begun; the last of them may go on.
std::string ChatDelta(const CompletionStream::Delta& delta, int64_t num_calls_before) {
  std::string content;
  std::string reasoning;
  std::vector<std::string> calls;
  std::string arguments;  // of the last in `calls`
  int64_t index = num_calls_before - 1;
  bool is_open = false;
  size_t num_begun = 0;
  const auto close = [&] {
    if (!is_open) return;
    AppendJsonString(arguments, &calls.back());
    calls.back() += "}}";
    arguments.clear();
    is_open = false;
  };
  for (const AnswerPart& part : delta.parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        content += part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        reasoning += part.text;
        break;
      case AnswerPart::Kind::kCallBegin:
        close();
        calls.push_back(fmt::format(R"({{"index":{},"id":"{}","type":"function","function":{{"name":)",
                                    ++index, delta.call_ids[num_begun++]));
        AppendJsonString(part.text, &calls.back());
        calls.back() += R"(,"arguments":)";
        is_open = true;
        break;
      case AnswerPart::Kind::kCallArguments:
        if (!is_open) calls.push_back(fmt::format(R"({{"index":{},"function":{{"arguments":)", index));
        is_open = true;
        arguments += part.text;
        break;
      case AnswerPart::Kind::kCallEnd:
        close();
        break;
    }
  }
  close();
  std::string json = "{";
  const auto add = [&json](std::string_view name, const std::string& text) {
    if (text.empty()) return;
    json += fmt::format(R"({}"{}":)", json.size() > 1 ? "," : "", name);
    AppendJsonString(text, &json);
  };
  add("reasoning_content", reasoning);
  add("content", content);
  if (!calls.empty())
    json += fmt::format(R"({}"tool_calls":[{}])", json.size() > 1 ? "," : "", fmt::join(calls, ","));
  return json + "}";
}

}  // namespace

Usage CountUsage(const std::vector<CompletionStream>& streams, int64_t n) {
  Usage usage;
  const auto count = static_cast<size_t>(n);
  for (size_t begin = 0; begin < streams.size(); begin += count) {
    // A prompt counts once: all of its streams but the first may find what was computed for that.
    int64_t cached_tokens = streams[begin].num_cached_tokens();
    for (size_t i = begin; i < begin + count; ++i) {
      cached_tokens = std::min(cached_tokens, streams[i].num_cached_tokens());
      usage.completion_tokens += streams[i].num_output_tokens();
    }
    usage.prompt_tokens += streams[begin].num_prompt_tokens();
    usage.cached_tokens += cached_tokens;
  }
  return usage;
}

std::string TokenNames::Of(int32_t token) const {
  return as_token_ids ? fmt::format("token_id:{}", token) : TokenText(tokenizer->TokenBytes(token));
}

std::string_view FinishReasonOf(const CompletionStream& stream) {
  const bool calls = stream.num_calls() > 0 && stream.finish_reason() == "stop";
  return calls ? "tool_calls" : stream.finish_reason();
}

void Choice::Append(CompletionStream::Delta delta) {
  token_ids.insert(token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  records.insert(records.end(), std::make_move_iterator(delta.records.begin()),
                 std::make_move_iterator(delta.records.end()));
  auto id = delta.call_ids.begin();
  for (AnswerPart& part : delta.parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        text += part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        reasoning += part.text;
        break;
      case AnswerPart::Kind::kCallBegin:
        tool_calls.push_back({.id = *id++, .name = std::move(part.text), .arguments = {}});
        break;
      case AnswerPart::Kind::kCallArguments:
        tool_calls.back().arguments += part.text;
        break;
      case AnswerPart::Kind::kCallEnd:
        break;
    }
  }
}

std::string ResponseId(const GenerationRequest& request) {
  if (!request.answer_id.empty()) return request.answer_id;
  const char* const prefix = request.kind == GenerationRequest::Kind::kChat ? "chatcmpl" : "cmpl";
  if (!request.request_id.empty()) return fmt::format("{}-{}", prefix, request.request_id);
  return fmt::format("{}-{}", prefix, NewId());
}

ordered_json CompletionLogprobs(const TokenNames& names, const std::vector<TokenRecord>& records,
                                int32_t num_logprobs) {
  ordered_json tokens = ordered_json::array();
  ordered_json token_logprobs = ordered_json::array();
  ordered_json top_logprobs = ordered_json::array();
  ordered_json text_offset = ordered_json::array();
  for (const TokenRecord& record : records) {
    const std::string text = names.Of(record.token);
    tokens.push_back(text);
    text_offset.push_back(record.text_offset);
    if (!record.logprob) {
      token_logprobs.push_back(nullptr);
      top_logprobs.push_back(nullptr);
      continue;
    }
    token_logprobs.push_back(LogprobValue(*record.logprob));
    // The token's own, and the best; of tokens with the same text the more likely one counts.
    ordered_json top = ordered_json::object();
    const auto count = std::min(record.top_logprobs.size(), static_cast<size_t>(num_logprobs));
    for (size_t i = 0; i < count; ++i) {
      const TokenLogprob& candidate = record.top_logprobs[i];
      top.emplace(names.Of(candidate.token), LogprobValue(candidate.logprob));
    }
    top.emplace(text, LogprobValue(*record.logprob));
    top_logprobs.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(token_logprobs)},
          {"top_logprobs", std::move(top_logprobs)},
          {"text_offset", std::move(text_offset)}};
}

ordered_json ChatLogprobs(const TokenNames& names, const std::vector<TokenRecord>& records,
                          int32_t num_logprobs) {
  ordered_json content = ordered_json::array();
  for (const TokenRecord& record : records) {
    ordered_json entry = ChatToken(names, record.token, record.logprob.value_or(0.0F));
    ordered_json& top = entry["top_logprobs"] = ordered_json::array();
    const auto count = std::min(record.top_logprobs.size(), static_cast<size_t>(num_logprobs));
    for (size_t i = 0; i < count; ++i) {
      top.push_back(ChatToken(names, record.top_logprobs[i].token, record.top_logprobs[i].logprob));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

ordered_json PromptLogprobs(const TokenNames& names, const std::vector<SampledToken>& sampled,
                            int32_t num_top) {
  ordered_json places = ordered_json::array({nullptr});
  for (const SampledToken& token : sampled) {
    ordered_json place = ordered_json::object();
    const auto add = [&](int32_t id, float logprob, int64_t rank) {
      place.emplace(
          std::to_string(id),
          ordered_json{{"logprob", LogprobValue(logprob)}, {"rank", rank}, {"decoded_token", names.Of(id)}});
    };
    add(token.token, token.logprob, token.rank);
    const auto count = std::min(token.top_logprobs.size(), static_cast<size_t>(num_top));
    for (size_t i = 0; i < count; ++i) {
      add(token.top_logprobs[i].token, token.top_logprobs[i].logprob, static_cast<int64_t>(i) + 1);
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::string ResponseBody(const ResponseIdentity& identity, const Tokenizer& tokenizer,
                         const GenerationRequest& request, const std::vector<Choice>& choices,
                         const std::vector<CompletionStream>& streams, const Usage& usage) {
  const bool is_chat = identity.kind == GenerationRequest::Kind::kChat;
  ordered_json choice_list = ordered_json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    ordered_json choice = {{"index", i}};
    if (is_chat) {
      choice["message"] = MessageJson(choices[i]);
    } else {
      choice["text"] = choices[i].text;
    }
    choice["logprobs"] = LogprobsJson(request, tokenizer, choices[i].records);
    choice["finish_reason"] = FinishReasonOf(streams[i]);
    choice["stop_reason"] = StopReason(streams[i]);
    if (request.return_token_ids) choice["token_ids"] = choices[i].token_ids;
    if (!is_chat) AddPromptFields(request, tokenizer, streams[i], &choice);
    choice_list.push_back(std::move(choice));
  }
  ordered_json body = {{"id", identity.id},
                       {"object", is_chat ? "chat.completion" : "text_completion"},
                       {"created", identity.created},
                       {"model", identity.model}};
  if (request.names_service_tier) body["service_tier"] = ServiceTier(request);
  body["choices"] = std::move(choice_list);
  body["usage"] = UsageJson(usage);
  if (is_chat) AddPromptFields(request, tokenizer, streams[0], &body);
  return DumpJson(body);
}

ChunkWriter::ChunkWriter(const ResponseIdentity& identity, const Tokenizer* tokenizer,
                         const GenerationRequest* request)
    : is_chat_(identity.kind == GenerationRequest::Kind::kChat), tokenizer_(tokenizer), request_(request) {
  head_ = fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":)", identity.id,
                      is_chat_ ? "chat.completion.chunk" : "text_completion", identity.created);
  AppendJsonString(identity.model, &head_);
  if (request->names_service_tier) head_ += fmt::format(R"(,"service_tier":"{}")", ServiceTier(*request));
  prefix_ = head_ + R"(,"choices":[{"index":)";
}

std::string ChunkWriter::Close(std::string chunk) const {
  chunk += request_->include_usage ? R"(}],"usage":null})" : "}]}";
  return chunk;
}

std::string ChunkWriter::CloseWithUsage(std::string chunk, const CompletionStream& stream) const {
  if (!request_->continuous_usage) return Close(std::move(chunk));
  const Usage usage{.prompt_tokens = stream.num_prompt_tokens(),
                    .completion_tokens = stream.num_output_tokens(),
                    .cached_tokens = stream.num_cached_tokens()};
  return fmt::format(R"({}}}],"usage":{}}})", chunk, DumpJson(UsageJson(usage)));
}

std::string ChunkWriter::Role(size_t choice_index, const CompletionStream& stream) const {
  std::string chunk = Close(
      fmt::format(R"({}{},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null)",
                  prefix_, choice_index));
  if (request_->return_token_ids) chunk.insert(chunk.size() - 1, PromptTokenIds(stream));
  return chunk;
}

std::string ChunkWriter::PromptTokenIds(const CompletionStream& stream) {
  return fmt::format(R"(,"prompt_token_ids":[{}])", fmt::join(stream.prompt_tokens(), ","));
}

std::string ChunkWriter::Delta(size_t choice_index, const CompletionStream::Delta& delta,
                               const CompletionStream& stream) const {
  std::string chunk = fmt::format("{}{},", prefix_, choice_index);
  if (is_chat_) {
    const int64_t num_ended_calls = stream.num_calls() - std::ssize(delta.call_ids);
    chunk += R"("delta":)" + ChatDelta(delta, num_ended_calls);
  } else {
    chunk += R"("text":)";
    AppendJsonString(delta.text, &chunk);
  }
  chunk += R"(,"logprobs":)";
  chunk += delta.records.empty() ? "null" : DumpJson(LogprobsJson(*request_, *tokenizer_, delta.records));
  if (request_->return_token_ids) {
    chunk += fmt::format(R"(,"token_ids":[{}])", fmt::join(delta.token_ids, ","));
    if (delta.is_first && !is_chat_) chunk += PromptTokenIds(stream);
  }
  if (delta.finished) {
    chunk += fmt::format(R"(,"finish_reason":"{}","stop_reason":{})", FinishReasonOf(stream),
                         DumpJson(StopReason(stream)));
  } else {
    chunk += R"(,"finish_reason":null)";
  }
  return CloseWithUsage(std::move(chunk), stream);
}

std::string ChunkWriter::FinalUsage(const Usage& usage) const {
  return fmt::format(R"({},"choices":[],"usage":{}}})", head_, DumpJson(UsageJson(usage)));
}

}  // namespace tandem
