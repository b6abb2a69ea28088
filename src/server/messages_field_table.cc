// The rows of /v1/messages.
#include <array>

#include "server/field_rows.h"
#include "server/request_field_table.h"

namespace tandem {
namespace {

constexpr FieldRows kOnMessages = RowsOf(RequestRoute::kMessages);

constexpr auto kMessagesFields = std::to_array<RequestField>({
    kOnMessages.Dropped("anthropic_beta", "names a version of the API"),
    kOnMessages.Dropped("anthropic_version", "names a version of the API"),
    kOnMessages.Dropped("betas", "names a version of the API"),
    kOnMessages.Dropped("cache_control", "cached beginnings are found by their tokens"),
    kOnMessages.Served("cache_salt", "as in chats"),
    kOnMessages.Refused("container", "tools are called by the client"),
    kOnMessages.Dropped("context_management", "the messages are taken as they come"),
    kOnMessages.Dropped("diagnostics", "answers say how much was cached, not why"),
    kOnMessages.Dropped("inference_geo", "the server is where it is"),
    kOnMessages.Refused("max_completion_tokens", "use max_tokens"),
    kOnMessages.Served("max_tokens",
                       "tokens of the answer at most; what the context has no room for is left out"),
    kOnMessages.Refused("max_tokens_to_sample", "use max_tokens"),
    kOnMessages.Refused("mcp_servers", "tools are called by the client", "[]"),
    kOnMessages.Served("messages", "what was said so far"),
    kOnMessages.Dropped("metadata", "nobody is told apart by it"),
    kOnMessages.Served("model", "the served name; may be left out"),
    kOnMessages.Served("output_config",
                       "`format`: the schema of the answer; `effort`: as `reasoning_effort`"),
    kOnMessages.Served("output_format", "the same as `output_config.format`"),
    kOnMessages.Refused("prompt", "use messages"),
    kOnMessages.Refused("reasoning_effort", "use output_config.effort"),
    kOnMessages.Refused("response_format", "use output_config.format"),
    kOnMessages.Served("seed", "of the draws"),
    kOnMessages.Served("service_tier", "`auto` or `standard_only`, which are the same"),
    kOnMessages.Dropped("speed", "every answer comes as fast as it can"),
    kOnMessages.Refused("stop", "use stop_sequences", "[]"),
    kOnMessages.Served("stop_sequences", "texts that end the answer"),
    kOnMessages.Served("stream", "the answer in pieces"),
    kOnMessages.Served("system", "the system message"),
    kOnMessages.Served("temperature", "0 is greedy; at most 1"),
    kOnMessages.Served("thinking",
                       "`enabled` and `adaptive`: the template's `enable_thinking`; else it is off"),
    kOnMessages.Served("tool_choice", "`auto`, `any`, `tool` or `none`"),
    kOnMessages.Served("tools", "those without a schema that only a vendor's cloud runs are dropped"),
    kOnMessages.Served("top_k", "tokens that are drawn from; 0: all"),
    kOnMessages.Served("top_p", "share of the probability that is drawn from"),
    kOnMessages.Dropped("user_profile_id", "nobody is told apart by it"),
    kOnMessages.Dropped("workspace_id", "nobody is told apart by it"),
});

}  // namespace

std::span<const RequestField> MessagesFieldTable() {
  return kMessagesFields;
}

}  // namespace tandem
