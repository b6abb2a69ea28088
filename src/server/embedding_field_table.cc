// The rows of /v1/embeddings.
#include <array>

#include "server/request_field_table.h"

namespace tandem {
namespace {

constexpr uint8_t kOnEmbeddings = static_cast<uint8_t>(RequestRoute::kEmbeddings);

constexpr RequestField ServedEmbedding(std::string_view name, std::string_view note) {
  return {name, kOnEmbeddings, FieldState::kImplemented, note, {}};
}

constexpr RequestField DroppedEmbedding(std::string_view name, std::string_view note) {
  return {name, kOnEmbeddings, FieldState::kNoEffect, note, {}};
}

constexpr RequestField RefusedEmbedding(std::string_view name, std::string_view note,
                                        std::string_view harmless = {}) {
  return {name, kOnEmbeddings, FieldState::kRefused, note, harmless};
}

constexpr auto kEmbeddingFields = std::to_array<RequestField>({
    DroppedEmbedding("add_generation_prompt", "of `messages`, which is refused"),
    ServedEmbedding("add_special_tokens", "`true` (the default): those that the tokenizer adds to a text"),
    DroppedEmbedding("cache_salt", "there is no prefix cache"),
    DroppedEmbedding("chat_template", "of `messages`, which is refused"),
    DroppedEmbedding("chat_template_kwargs", "of `messages`, which is refused"),
    RefusedEmbedding("content", "use input"),
    DroppedEmbedding("continue_final_message", "of `messages`, which is refused"),
    ServedEmbedding(
        "dimensions",
        "the first so many values of each embedding, the model's hidden size at most; all by default"),
    RefusedEmbedding("embd_normalize", "use normalize", "2"),
    RefusedEmbedding("embed_dtype", "values are 32-bit floats", R"("float32")"),
    RefusedEmbedding("embedding_type", "use encoding_format", R"("float")"),
    RefusedEmbedding("embedding_types", "use encoding_format", R"(["float"])"),
    ServedEmbedding("encoding_format", "`float` (the default), or `base64` of little-endian 32-bit floats"),
    RefusedEmbedding("endianness", "base64 is of little-endian floats", R"("little", "native")"),
    RefusedEmbedding("extra_body", "its members belong into the body itself", "{}"),
    RefusedEmbedding("images", "inputs are text", "[]"),
    ServedEmbedding("input", "a text, token ids, or a list of at most 2048 of either"),
    RefusedEmbedding("input_type", "write the model's instruction into input"),
    RefusedEmbedding("inputs", "use input"),
    RefusedEmbedding("instruction", "write the model's instruction into input"),
    RefusedEmbedding("instructions", "write the model's instruction into input"),
    DroppedEmbedding("keep_alive", "the model stays loaded"),
    RefusedEmbedding("late_chunking", "each input stands by itself", "false"),
    RefusedEmbedding("lora_path", "there are no adapters"),
    RefusedEmbedding("lora_request", "there are no adapters"),
    RefusedEmbedding("messages", "use input"),
    DroppedEmbedding("metadata", "nothing is stored"),
    RefusedEmbedding("mm_processor_kwargs", "inputs are text", "{}"),
    RefusedEmbedding("modality", "inputs are text", R"("text", ["text"])"),
    ServedEmbedding("model", "a served name; may be left out"),
    ServedEmbedding("normalize", "`true` (the default): embeddings have length 1"),
    RefusedEmbedding("normalized", "use normalize", "true"),
    RefusedEmbedding("options", "its members belong into the body itself", "{}"),
    RefusedEmbedding("output_dimension", "use dimensions"),
    RefusedEmbedding("output_dimensionality", "use dimensions"),
    RefusedEmbedding("output_dtype", "values are 32-bit floats", R"("float")"),
    RefusedEmbedding("pooling", "the model says which of its hidden states are taken"),
    RefusedEmbedding("priority", "requests are served in the order of their arrival", "0"),
    RefusedEmbedding("prompt", "use input"),
    RefusedEmbedding("prompt_embeds", "inputs are text or token ids"),
    RefusedEmbedding("prompt_name", "write the model's instruction into input"),
    DroppedEmbedding("request_id", "X-Request-Id names requests"),
    DroppedEmbedding("rid", "X-Request-Id names requests"),
    DroppedEmbedding("service_tier", "an embedding has one step"),
    RefusedEmbedding("stream", "an embedding comes whole", "false"),
    RefusedEmbedding("task", "write the model's instruction into input"),
    RefusedEmbedding("texts", "use input"),
    DroppedEmbedding("timeout", "clients end requests by closing them"),
    RefusedEmbedding("truncate", "use truncate_prompt_tokens", R"(false, "NONE")"),
    ServedEmbedding("truncate_prompt_tokens",
                    "keeps so many tokens of a longer input; -1: as many as fit the context"),
    RefusedEmbedding("truncation", "use truncate_prompt_tokens", R"(false, "disabled")"),
    RefusedEmbedding("truncation_direction", "use truncation_side", R"("right", "Right")"),
    ServedEmbedding(
        "truncation_side",
        "`right` (the default) drops the last tokens, `left` the first; those that the tokenizer adds stay"),
    DroppedEmbedding("ttl", "the model stays loaded"),
    RefusedEmbedding("use_activation", "use normalize", "true"),
    DroppedEmbedding("user", "nobody is told apart by it"),
});

}  // namespace

std::span<const RequestField> EmbeddingFieldTable() {
  return kEmbeddingFields;
}

}  // namespace tandem
