// The rows of /v1/responses.
#include <array>

#include "server/field_rows.h"
#include "server/request_field_table.h"

namespace tandem {
namespace {

constexpr FieldRows kOnResponses = RowsOf(RequestRoute::kResponses);

constexpr auto kResponsesFields = std::to_array<RequestField>({
    kOnResponses.Served("allowed_token_ids", "as in chats"),
    kOnResponses.Refused("background", "answers come on the connection that asked", "false"),
    kOnResponses.Served("bad_words", "as in chats"),
    kOnResponses.Served("cache_salt", "as in chats"),
    kOnResponses.Served("chat_template_kwargs", "as in chats"),
    kOnResponses.Dropped("client_metadata", "nobody reads it"),
    kOnResponses.Dropped("context_management", "the client owns the conversation"),
    kOnResponses.Refused("conversation", "use previous_response_id"),
    kOnResponses.Refused("echo", "the input is not repeated", "false"),
    kOnResponses.Served("enable_thinking", "as in chats"),
    kOnResponses.Refused("format", "use text.format"),
    kOnResponses.Served("frequency_penalty", "as in chats"),
    kOnResponses.Refused("function_call", "use tools and tool_choice"),
    kOnResponses.Refused("functions", "use tools", "[]"),
    kOnResponses.Refused("grammar", "use text.format"),
    kOnResponses.Refused("guided_choice", "use text.format"),
    kOnResponses.Refused("guided_grammar", "use text.format"),
    kOnResponses.Refused("guided_json", "use text.format"),
    kOnResponses.Refused("guided_regex", "use text.format"),
    kOnResponses.Served("ignore_eos", "as in chats"),
    kOnResponses.Served("include", "`message.output_text.logprobs`; others name what no answer here has"),
    kOnResponses.Served("input", "a text, or a list of items"),
    kOnResponses.Served("instructions", "a system message in front, of this response alone"),
    kOnResponses.Refused("json_schema", "use text.format"),
    kOnResponses.Served("logit_bias", "as in chats"),
    kOnResponses.Refused("logprobs", "use top_logprobs", "false"),
    kOnResponses.Refused("max_completion_tokens", "use max_output_tokens"),
    kOnResponses.Refused("max_new_tokens", "use max_output_tokens"),
    kOnResponses.Served(
        "max_output_tokens",
        "tokens of the answer at most, those of its reasons too; cut to what is left of the context"),
    kOnResponses.Refused("max_tokens", "use max_output_tokens"),
    kOnResponses.Dropped("max_tool_calls", "of tools that a cloud runs"),
    kOnResponses.Refused("messages", "use input, or /v1/chat/completions"),
    kOnResponses.Dropped("metadata", "repeated in the response"),
    kOnResponses.Served("min_p", "as in chats"),
    kOnResponses.Served("min_tokens", "as in chats"),
    kOnResponses.Served("model", "as in chats"),
    kOnResponses.Refused("moderation", "answers are not judged"),
    kOnResponses.Refused("n", "a response is one answer", "1"),
    kOnResponses.Refused("n_predict", "use max_output_tokens"),
    kOnResponses.Served("parallel_tool_calls", "as in chats"),
    kOnResponses.Served("presence_penalty", "as in chats"),
    kOnResponses.Refused("previous_messages", "use previous_response_id or input"),
    kOnResponses.Served("previous_response_id", "a stored response to go on from"),
    kOnResponses.Refused("prompt", "no prompts are stored; use input"),
    kOnResponses.Dropped("prompt_cache_key", "cached beginnings are found by their tokens"),
    kOnResponses.Dropped("prompt_cache_options", "cached beginnings are found by their tokens"),
    kOnResponses.Dropped("prompt_cache_retention", "cached beginnings are found by their tokens"),
    kOnResponses.Served("reasoning", "of models that reason"),
    kOnResponses.Dropped("reasoning.context", "all reasons that the input has are shown"),
    kOnResponses.Served("reasoning.effort", "`reasoning_effort` of chats"),
    kOnResponses.Dropped("reasoning.generate_summary", "the older name of `reasoning.summary`"),
    kOnResponses.Served("reasoning.summary",
                        "given: reasons are the summary of their item, else its content"),
    kOnResponses.Refused("reasoning_effort", "use reasoning.effort"),
    kOnResponses.Refused("regex", "use text.format"),
    kOnResponses.Served("repetition_penalty", "as in chats"),
    kOnResponses.Refused("response_format", "use text.format"),
    kOnResponses.Dropped("safety_identifier", "nobody is told apart by it"),
    kOnResponses.Served("seed", "as in chats"),
    kOnResponses.Served("service_tier", "as in chats"),
    kOnResponses.Served("stop", "as in chats"),
    kOnResponses.Served("stop_token_ids", "as in chats"),
    kOnResponses.Served("store", "`false`: is not kept for `previous_response_id`"),
    kOnResponses.Served("stream", "as in chats"),
    kOnResponses.Dropped("stream_options", "of streams only"),
    kOnResponses.Dropped("stream_options.include_obfuscation", "events are never padded"),
    kOnResponses.Dropped("stream_options.include_usage", "the last event has it"),
    kOnResponses.Refused("structural_tag", "use text.format"),
    kOnResponses.Refused("structured_outputs", "use text.format"),
    kOnResponses.Refused("system", "use instructions"),
    kOnResponses.Served("temperature", "as in chats"),
    kOnResponses.Served("text", "the form of the text"),
    kOnResponses.Served("text.format", "`text`, `json_object` or `json_schema`"),
    kOnResponses.Dropped("text.verbosity", "a wish that no chat template reads"),
    kOnResponses.Dropped("timeout", "clients end requests by closing them"),
    kOnResponses.Served("tool_choice",
                        "`none`, `auto`, `required`, a tool by `type` and `name`, or `allowed_tools`"),
    kOnResponses.Served(
        "tools",
        "`function`, `custom` (text alone), `namespace`; those without a schema, which only a "
        "cloud runs, are dropped"),
    kOnResponses.Served("top_k", "as in chats"),
    kOnResponses.Served("top_logprobs", "of the best tokens"),
    kOnResponses.Served("top_p", "as in chats"),
    kOnResponses.Served("truncation", "`auto` leaves out the oldest turns of an input that is too long"),
    kOnResponses.Dropped("user", "nobody is told apart by it"),
});

}  // namespace

std::span<const RequestField> ResponsesFieldTable() {
  return kResponsesFields;
}

}  // namespace tandem
