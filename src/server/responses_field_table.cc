// The rows of /v1/responses.
#include <array>

#include "server/request_field_table.h"

namespace tandem {
namespace {

constexpr uint8_t kOnResponses = static_cast<uint8_t>(RequestRoute::kResponses);

constexpr RequestField ServedResponse(std::string_view name, std::string_view note) {
  return {name, kOnResponses, FieldState::kImplemented, note, {}};
}

constexpr RequestField DroppedResponse(std::string_view name, std::string_view note) {
  return {name, kOnResponses, FieldState::kNoEffect, note, {}};
}

constexpr RequestField RefusedResponse(std::string_view name, std::string_view note,
                                       std::string_view harmless = {}) {
  return {name, kOnResponses, FieldState::kRefused, note, harmless};
}

constexpr auto kResponsesFields = std::to_array<RequestField>({
    ServedResponse("allowed_token_ids", "as in chats"),
    RefusedResponse("background", "answers come on the connection that asked", "false"),
    ServedResponse("bad_words", "as in chats"),
    ServedResponse("chat_template_kwargs", "as in chats"),
    DroppedResponse("client_metadata", "nobody reads it"),
    DroppedResponse("context_management", "the client owns the conversation"),
    RefusedResponse("conversation", "use previous_response_id"),
    RefusedResponse("echo", "the input is not repeated", "false"),
    ServedResponse("enable_thinking", "as in chats"),
    RefusedResponse("format", "use text.format"),
    ServedResponse("frequency_penalty", "as in chats"),
    RefusedResponse("function_call", "use tools and tool_choice"),
    RefusedResponse("functions", "use tools", "[]"),
    RefusedResponse("grammar", "use text.format"),
    RefusedResponse("guided_choice", "use text.format"),
    RefusedResponse("guided_grammar", "use text.format"),
    RefusedResponse("guided_json", "use text.format"),
    RefusedResponse("guided_regex", "use text.format"),
    ServedResponse("ignore_eos", "as in chats"),
    ServedResponse("include", "`message.output_text.logprobs`; others name what no answer here has"),
    ServedResponse("input", "a text, or a list of items"),
    ServedResponse("instructions", "a system message in front, of this response alone"),
    RefusedResponse("json_schema", "use text.format"),
    ServedResponse("logit_bias", "as in chats"),
    RefusedResponse("logprobs", "use top_logprobs", "false"),
    RefusedResponse("max_completion_tokens", "use max_output_tokens"),
    RefusedResponse("max_new_tokens", "use max_output_tokens"),
    ServedResponse(
        "max_output_tokens",
        "tokens of the answer at most, those of its reasons too; cut to what is left of the context"),
    RefusedResponse("max_tokens", "use max_output_tokens"),
    DroppedResponse("max_tool_calls", "of tools that a cloud runs"),
    RefusedResponse("messages", "use input, or /v1/chat/completions"),
    DroppedResponse("metadata", "repeated in the response"),
    ServedResponse("min_p", "as in chats"),
    ServedResponse("min_tokens", "as in chats"),
    ServedResponse("model", "as in chats"),
    RefusedResponse("moderation", "answers are not judged"),
    RefusedResponse("n", "a response is one answer", "1"),
    RefusedResponse("n_predict", "use max_output_tokens"),
    ServedResponse("parallel_tool_calls", "as in chats"),
    ServedResponse("presence_penalty", "as in chats"),
    RefusedResponse("previous_messages", "use previous_response_id or input"),
    ServedResponse("previous_response_id", "a stored response to go on from"),
    RefusedResponse("prompt", "no prompts are stored; use input"),
    DroppedResponse("prompt_cache_key", "there is no prefix cache"),
    DroppedResponse("prompt_cache_options", "there is no prefix cache"),
    DroppedResponse("prompt_cache_retention", "there is no prefix cache"),
    ServedResponse("reasoning", "of models that reason"),
    DroppedResponse("reasoning.context", "all reasons that the input has are shown"),
    ServedResponse("reasoning.effort", "`reasoning_effort` of chats"),
    DroppedResponse("reasoning.generate_summary", "the older name of `reasoning.summary`"),
    ServedResponse("reasoning.summary", "given: reasons are the summary of their item, else its content"),
    RefusedResponse("reasoning_effort", "use reasoning.effort"),
    RefusedResponse("regex", "use text.format"),
    ServedResponse("repetition_penalty", "as in chats"),
    RefusedResponse("response_format", "use text.format"),
    DroppedResponse("safety_identifier", "nobody is told apart by it"),
    ServedResponse("seed", "as in chats"),
    ServedResponse("service_tier", "as in chats"),
    ServedResponse("stop", "as in chats"),
    ServedResponse("stop_token_ids", "as in chats"),
    ServedResponse("store", "`false`: is not kept for `previous_response_id`"),
    ServedResponse("stream", "as in chats"),
    DroppedResponse("stream_options", "of streams only"),
    DroppedResponse("stream_options.include_obfuscation", "events are never padded"),
    DroppedResponse("stream_options.include_usage", "the last event has it"),
    RefusedResponse("structural_tag", "use text.format"),
    RefusedResponse("structured_outputs", "use text.format"),
    RefusedResponse("system", "use instructions"),
    ServedResponse("temperature", "as in chats"),
    ServedResponse("text", "the form of the text"),
    ServedResponse("text.format", "`text`, `json_object` or `json_schema`"),
    DroppedResponse("text.verbosity", "a wish that no chat template reads"),
    DroppedResponse("timeout", "clients end requests by closing them"),
    ServedResponse("tool_choice",
                   "`none`, `auto`, `required`, a tool by `type` and `name`, or `allowed_tools`"),
    ServedResponse("tools",
                   "`function`, `custom` (text alone), `namespace`; those without a schema, which only a "
                   "cloud runs, are dropped"),
    ServedResponse("top_k", "as in chats"),
    ServedResponse("top_logprobs", "of the best tokens"),
    ServedResponse("top_p", "as in chats"),
    ServedResponse("truncation", "`auto` leaves out the oldest turns of an input that is too long"),
    DroppedResponse("user", "nobody is told apart by it"),
});

}  // namespace

std::span<const RequestField> ResponsesFieldTable() {
  return kResponsesFields;
}

}  // namespace tandem
