// A validated request of /v1/completions or /v1/chat/completions, ready to be submitted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/pooling.h"
#include "dialect/answer_parser.h"
#include "dialect/messages.h"
#include "load/model_config.h"
#include "request/grammar.h"
#include "request/sampling_params.h"
#include "server/api_error.h"
#include "server/cache_sharing.h"
#include "server/request_field_table.h"
#include "server/structured_output.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// What validation needs to know of the model and of the server's rules; plain pointers into the engine.
struct ModelContext {
  std::string served_model_name;           // in answers
  std::vector<std::string> model_aliases;  // other names that requests may give it
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // nullptr if the model has none
  GenerationDefaults defaults;
  int64_t max_model_len = 0;
  int64_t hidden_size = 0;                 // of its embeddings
  Pooling pooling = Pooling::kLast;        // of its embeddings
  bool generates = true;                   // else there are only embeddings
  bool special_tokens_in_content = false;  // whether what messages spell makes control tokens
  bool reject_unknown_fields = false;
  ToolFormat tool_format = ToolFormat::kGeneric;
  bool reasons = false;  // the model writes its reasoning between markers
  TemplateHabits template_habits;
  int64_t default_max_tokens = 0;  // of a chat that says nothing; 0: what is left of the context

  bool HasName(std::string_view name) const {
    return name == served_model_name || std::ranges::find(model_aliases, name) != model_aliases.end();
  }
};

class AnswerWriter;
class FieldReader;
struct ChatTools;  // server/chat_tools.h
struct AnswerWriterContext;

struct GenerationRequest {
  enum class Kind { kCompletion, kChat };
  struct Prompt {
    std::vector<int32_t> tokens;
    // Of its first, those that the tokenizer added, which truncation keeps; only where there may be one.
    int64_t num_added_tokens = 0;
    std::string text;        // what echo shows; only with echo. Chat: the last message, if the assistant's
    int64_t max_tokens = 0;  // what is left of the context at most
  };

  // truncate_prompt_tokens and truncation_side.
  struct Truncation {
    std::optional<int64_t> num_tokens;  // that are left of a prompt; -1: as many as fit the context
    bool keeps_first = false;           // else the last
  };

  Kind kind = Kind::kCompletion;
  std::vector<Prompt> prompts;
  SamplingParams sampling;  // max_tokens and seed are per sequence: see Prompt and n
  int64_t n = 1;            // sequences per prompt; the i-th has seed + i
  bool stream = false;
  bool include_usage = false;
  // Every chunk has the usage of its choice so far.
  bool continuous_usage = false;
  bool echo = false;
  bool discard_output = false;  // max_tokens 0 with echo: only the prompt is wanted
  bool skip_special_tokens = true;
  bool include_stop_str_in_output = false;
  std::vector<std::string> stop;
  int32_t num_logprobs = -1;         // -1: none
  int32_t num_prompt_logprobs = -1;  // -1: none; else those of the prompt are in the answer by themselves
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;  // in log-probabilities
  std::string request_id;                   // of the answer's id; empty: a new one
  std::string answer_id;                    // the whole of it, of APIs that have their own form
  Truncation truncation;
  bool flexible = false;            // service tier "flex", else "default"
  bool names_service_tier = false;  // the answer says which it was
  CacheSharing cache_sharing;       // key_name: before the body is read
  std::vector<std::string> ignored_fields;
  // How an answer of a chat is taken apart.
  AnswerParserOptions parser;
  // Special tokens that its parser has to see.
  std::vector<int32_t> shown_special_tokens;
  bool one_call = false;                      // the answer ends with its first call of a tool
  std::optional<AnswerGrammar> grammar_spec;  // what the answer has to follow
  std::shared_ptr<const Grammar> grammar;     // the same, compiled
  // The form of the answer; empty: OpenAI's of `kind`.
  std::function<std::unique_ptr<AnswerWriter>(const AnswerWriterContext& context)> make_writer;
  std::function<HttpResponse(const ApiError& error)> error_response = &ErrorResponse;
};

// Each returns the error, or nothing and fills *request. Any thread.
std::optional<ApiError> ParseCompletionRequest(const nlohmann::ordered_json& body, const ModelContext& model,
                                               GenerationRequest* request);
std::optional<ApiError> ParseChatRequest(const nlohmann::ordered_json& body, const ModelContext& model,
                                         GenerationRequest* request);

// Fields common to both; defaults are the model's generation config, then the API's.
std::optional<ApiError> ParseSampling(const nlohmann::ordered_json& body, const ModelContext& model,
                                      GenerationRequest* request);
// truncation: as it is without these fields.
void ReadTruncation(FieldReader& reader, GenerationRequest::Truncation* truncation);
// "model": absent, or a served name.
std::optional<ApiError> CheckModelName(const nlohmann::ordered_json& body, const ModelContext& model);
// The first step of every API: the body is an object, and none of its fields is refused (JudgeFields).
std::optional<ApiError> JudgeBody(const nlohmann::ordered_json& body, RequestRoute route,
                                  const ModelContext& model, std::vector<std::string>* ignored_fields);
// That of completions and chats, with the model's name.
std::optional<ApiError> CheckBody(const nlohmann::ordered_json& body, const ModelContext& model,
                                  GenerationRequest* request);
// Drops what request.truncation has no room for; max_tokens: if given. False: nothing.
bool TruncatePrompt(const GenerationRequest& request, std::optional<int64_t> max_tokens,
                    const ModelContext& model, GenerationRequest::Prompt* prompt);
// Whether the prompt and max_tokens (if given) fit the context; sets prompt->max_tokens.
std::optional<ApiError> FitContext(std::optional<int64_t> max_tokens, int64_t default_max_tokens,
                                   const ModelContext& model, GenerationRequest::Prompt* prompt);

// What the chat template makes of "messages" (and "tools", "chat_template_kwargs", ...). tools: those that
// it was given, if not null.
std::optional<ApiError> RenderChat(const nlohmann::ordered_json& body, const ModelContext& model,
                                   RenderedChat* chat, ChatTools* tools = nullptr);
std::vector<int32_t> EncodeChat(const RenderedChat& chat, const ModelContext& model, bool add_special_tokens);

}  // namespace tandem
