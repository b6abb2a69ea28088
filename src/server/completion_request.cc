// /v1/completions: JSON to GenerationRequest.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/field_reader.h"
#include "server/generation_request.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kDefaultMaxTokens = 16;
constexpr size_t kMaxPrompts = 4096;

class PromptReader {
 public:
  PromptReader(FieldReader* fields, const ModelContext& model, bool add_special_tokens,
               GenerationRequest* request)
      : fields_(fields), model_(model), add_special_tokens_(add_special_tokens), request_(request) {}

  void Read() {
    const ordered_json* prompt = fields_->Find("prompt");
    if (prompt == nullptr) return Fail("prompt is missing");
    if (prompt->is_string()) return AddText(prompt->get_ref<const std::string&>());
    if (!prompt->is_array()) {
      return Fail(
          fmt::format("prompt must be a string, a list of strings, a list of token ids or a list of such "
                      "lists, not {}",
                      JsonTypeName(*prompt)));
    }
    if (prompt->empty()) return Fail("prompt must not be empty");
    const ordered_json& first = prompt->front();
    if (!first.is_number() && prompt->size() > kMaxPrompts) {
      return Fail(fmt::format("a request takes at most {} prompts, got {}", kMaxPrompts, prompt->size()));
    }
    if (first.is_number()) return AddTokens(*prompt);
    for (const ordered_json& item : *prompt) {
      if (item.type() != first.type()) return Fail("the items of prompt must all be of the same type");
      if (item.is_string()) {
        AddText(item.get_ref<const std::string&>());
      } else if (item.is_array()) {
        AddTokens(item);
      } else {
        return Fail(
            fmt::format("the items of prompt must be strings or token ids, not {}", JsonTypeName(item)));
      }
      if (fields_->error()) return;
    }
  }

 private:
  void Fail(std::string message) { fields_->Fail("prompt", std::move(message)); }

  void AddText(const std::string& text) {
    GenerationRequest::Prompt prompt;
    prompt.tokens = model_.tokenizer->Encode(text, add_special_tokens_);
    if (request_->truncation.num_tokens) prompt.num_added_tokens = NumAddedTokens(prompt.tokens);
    if (prompt.tokens.empty()) return Fail("prompt must not be empty");
    if (request_->echo) prompt.text = text;
    request_->prompts.push_back(std::move(prompt));
  }

  int64_t NumAddedTokens(const std::vector<int32_t>& tokens) const {
    const std::vector<int32_t> added = model_.tokenizer->Encode("", add_special_tokens_);
    const auto [end, unused] = std::mismatch(added.begin(), added.end(), tokens.begin(), tokens.end());
    return end - added.begin();
  }

  void AddTokens(const ordered_json& array) {
    GenerationRequest::Prompt prompt;
    std::string problem;
    if (!ReadTokenIds(array, model_.tokenizer->vocab_size(), &prompt.tokens, &problem)) {
      return Fail("prompt: " + problem);
    }
    if (prompt.tokens.empty()) return Fail("prompt must not be empty");
    if (request_->echo) {
      prompt.text = model_.tokenizer->Decode(prompt.tokens, request_->skip_special_tokens);
    }
    request_->prompts.push_back(std::move(prompt));
  }

  FieldReader* fields_;
  const ModelContext& model_;
  bool add_special_tokens_;
  GenerationRequest* request_;
};

// A number of the best tokens at each place; true: one, as chats have it.
void ReadLogprobs(FieldReader& fields, GenerationRequest* request) {
  const ordered_json* given = fields.Find("logprobs");
  if (given == nullptr) return;
  std::optional<int64_t> logprobs;
  if (given->is_boolean()) {
    if (!given->get<bool>()) return;
    logprobs = 1;
  } else {
    logprobs = fields.Int("logprobs", 0, kMaxTopLogprobs);
  }
  if (!logprobs) return;
  request->num_logprobs = static_cast<int32_t>(*logprobs);
  request->sampling.num_top_logprobs = request->num_logprobs;
  if (request->echo) {
    int32_t& of_prompt = request->sampling.num_prompt_top_logprobs;
    of_prompt = std::max(of_prompt, request->num_logprobs);
  }
}

}  // namespace

std::optional<ApiError> ParseCompletionRequest(const ordered_json& body, const ModelContext& model,
                                               GenerationRequest* request) {
  request->kind = GenerationRequest::Kind::kCompletion;
  if (auto error = CheckBody(body, model, request)) return error;
  if (auto error = ParseSampling(body, model, request)) return error;
  if (auto error = ReadAnswerGrammar(body, &request->grammar_spec)) return error;

  FieldReader fields(body);
  request->echo = fields.Bool("echo").value_or(false);
  ReadLogprobs(fields, request);
  constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
  std::optional<int64_t> max_tokens = fields.Int("max_tokens", 0, kMaxInt64);
  if (const auto other = fields.Int("max_completion_tokens", 0, kMaxInt64)) max_tokens = other;
  if (max_tokens == 0) {
    if (!request->echo && request->num_prompt_logprobs < 0) {
      fields.Fail("max_tokens", "max_tokens must be at least 1 unless echo or prompt_logprobs is set");
    }
    request->discard_output = true;
    max_tokens = 1;  // the forward pass that scores the prompt draws one anyway
  }
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  if (fields.error()) return fields.error();
  PromptReader(&fields, model, add_special_tokens, request).Read();
  if (fields.error()) return fields.error();
  for (GenerationRequest::Prompt& prompt : request->prompts) {
    if (TruncatePrompt(*request, max_tokens, model, &prompt) && request->echo) {
      prompt.text = model.tokenizer->Decode(prompt.tokens, request->skip_special_tokens);
    }
    if (auto error = FitContext(max_tokens, kDefaultMaxTokens, model, &prompt)) return error;
    if (request->sampling.min_tokens > prompt.max_tokens) {
      return InvalidRequest("min_tokens", fmt::format("min_tokens must be at most max_tokens ({}), got {}",
                                                      prompt.max_tokens, request->sampling.min_tokens));
    }
  }
  return std::nullopt;
}

}  // namespace tandem
