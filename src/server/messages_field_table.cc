// The rows of /v1/messages.
#include <array>

#include "server/request_field_table.h"

namespace tandem {
namespace {

constexpr uint8_t kOnMessages = static_cast<uint8_t>(RequestRoute::kMessages);

constexpr RequestField ServedMessages(std::string_view name, std::string_view note) {
  return {name, kOnMessages, FieldState::kImplemented, note, {}};
}

constexpr RequestField DroppedMessages(std::string_view name, std::string_view note) {
  return {name, kOnMessages, FieldState::kNoEffect, note, {}};
}

constexpr RequestField RefusedMessages(std::string_view name, std::string_view note,
                                       std::string_view harmless = {}) {
  return {name, kOnMessages, FieldState::kRefused, note, harmless};
}

constexpr auto kMessagesFields = std::to_array<RequestField>({
    DroppedMessages("anthropic_beta", "names a version of the API"),
    DroppedMessages("anthropic_version", "names a version of the API"),
    DroppedMessages("betas", "names a version of the API"),
    DroppedMessages("cache_control", "there is no prefix cache"),
    RefusedMessages("container", "tools are called by the client"),
    DroppedMessages("context_management", "the messages are taken as they come"),
    DroppedMessages("diagnostics", "answers say nothing of a cache"),
    DroppedMessages("inference_geo", "the server is where it is"),
    RefusedMessages("max_completion_tokens", "use max_tokens"),
    ServedMessages("max_tokens",
                   "tokens of the answer at most; what the context has no room for is left out"),
    RefusedMessages("max_tokens_to_sample", "use max_tokens"),
    RefusedMessages("mcp_servers", "tools are called by the client", "[]"),
    ServedMessages("messages", "what was said so far"),
    DroppedMessages("metadata", "nobody is told apart by it"),
    ServedMessages("model", "the served name; may be left out"),
    ServedMessages("output_config", "`format`: the schema of the answer; `effort`: as `reasoning_effort`"),
    ServedMessages("output_format", "the same as `output_config.format`"),
    RefusedMessages("prompt", "use messages"),
    RefusedMessages("reasoning_effort", "use output_config.effort"),
    RefusedMessages("response_format", "use output_config.format"),
    ServedMessages("seed", "of the draws"),
    ServedMessages("service_tier", "`auto` or `standard_only`, which are the same"),
    DroppedMessages("speed", "every answer comes as fast as it can"),
    RefusedMessages("stop", "use stop_sequences", "[]"),
    ServedMessages("stop_sequences", "texts that end the answer"),
    ServedMessages("stream", "the answer in pieces"),
    ServedMessages("system", "the system message"),
    ServedMessages("temperature", "0 is greedy; at most 1"),
    ServedMessages("thinking", "`enabled` and `adaptive`: the template's `enable_thinking`; else it is off"),
    ServedMessages("tool_choice", "`auto`, `any`, `tool` or `none`"),
    ServedMessages("tools", "those without a schema that only a vendor's cloud runs are dropped"),
    ServedMessages("top_k", "tokens that are drawn from; 0: all"),
    ServedMessages("top_p", "share of the probability that is drawn from"),
    DroppedMessages("user_profile_id", "nobody is told apart by it"),
    DroppedMessages("workspace_id", "nobody is told apart by it"),
});

}  // namespace

std::span<const RequestField> MessagesFieldTable() {
  return kMessagesFields;
}

}  // namespace tandem
