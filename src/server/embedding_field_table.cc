// The rows of /v1/embeddings.
#include <array>

#include "server/field_rows.h"
#include "server/request_field_table.h"

namespace tandem {
namespace {

constexpr FieldRows kOnEmbeddings = RowsOf(RequestRoute::kEmbeddings);

constexpr auto kEmbeddingFields = std::to_array<RequestField>({
    kOnEmbeddings.Dropped("add_generation_prompt", "of `messages`, which is refused"),
    kOnEmbeddings.Served("add_special_tokens",
                         "`true` (the default): those that the tokenizer adds to a text"),
    kOnEmbeddings.Dropped("cache_salt", "inputs are always computed whole"),
    kOnEmbeddings.Dropped("chat_template", "of `messages`, which is refused"),
    kOnEmbeddings.Dropped("chat_template_kwargs", "of `messages`, which is refused"),
    kOnEmbeddings.Refused("content", "use input"),
    kOnEmbeddings.Dropped("continue_final_message", "of `messages`, which is refused"),
    kOnEmbeddings.Served(
        "dimensions",
        "the first so many values of each embedding, the model's hidden size at most; all by default"),
    kOnEmbeddings.Refused("embd_normalize", "use normalize", "2"),
    kOnEmbeddings.Refused("embed_dtype", "values are 32-bit floats", R"("float32")"),
    kOnEmbeddings.Refused("embedding_type", "use encoding_format", R"("float")"),
    kOnEmbeddings.Refused("embedding_types", "use encoding_format", R"(["float"])"),
    kOnEmbeddings.Served("encoding_format",
                         "`float` (the default), or `base64` of little-endian 32-bit floats"),
    kOnEmbeddings.Refused("endianness", "base64 is of little-endian floats", R"("little", "native")"),
    kOnEmbeddings.Refused("extra_body", "its members belong into the body itself", "{}"),
    kOnEmbeddings.Refused("images", "inputs are text", "[]"),
    kOnEmbeddings.Served("input", "a text, token ids, or a list of at most 2048 of either"),
    kOnEmbeddings.Refused("input_type", "write the model's instruction into input"),
    kOnEmbeddings.Refused("inputs", "use input"),
    kOnEmbeddings.Refused("instruction", "write the model's instruction into input"),
    kOnEmbeddings.Refused("instructions", "write the model's instruction into input"),
    kOnEmbeddings.Dropped("keep_alive", "the model stays loaded"),
    kOnEmbeddings.Refused("late_chunking", "each input stands by itself", "false"),
    kOnEmbeddings.Refused("lora_path", "there are no adapters"),
    kOnEmbeddings.Refused("lora_request", "there are no adapters"),
    kOnEmbeddings.Refused("messages", "use input"),
    kOnEmbeddings.Dropped("metadata", "nothing is stored"),
    kOnEmbeddings.Refused("mm_processor_kwargs", "inputs are text", "{}"),
    kOnEmbeddings.Refused("modality", "inputs are text", R"("text", ["text"])"),
    kOnEmbeddings.Served("model", "a served name; may be left out"),
    kOnEmbeddings.Served("normalize", "`true` (the default): embeddings have length 1"),
    kOnEmbeddings.Refused("normalized", "use normalize", "true"),
    kOnEmbeddings.Refused("options", "its members belong into the body itself", "{}"),
    kOnEmbeddings.Refused("output_dimension", "use dimensions"),
    kOnEmbeddings.Refused("output_dimensionality", "use dimensions"),
    kOnEmbeddings.Refused("output_dtype", "values are 32-bit floats", R"("float")"),
    kOnEmbeddings.Refused("pooling", "the model says which of its hidden states are taken"),
    kOnEmbeddings.Refused("priority", "requests are served in the order of their arrival", "0"),
    kOnEmbeddings.Refused("prompt", "use input"),
    kOnEmbeddings.Refused("prompt_embeds", "inputs are text or token ids"),
    kOnEmbeddings.Refused("prompt_name", "write the model's instruction into input"),
    kOnEmbeddings.Dropped("request_id", "X-Request-Id names requests"),
    kOnEmbeddings.Dropped("rid", "X-Request-Id names requests"),
    kOnEmbeddings.Dropped("service_tier", "an embedding has one step"),
    kOnEmbeddings.Refused("stream", "an embedding comes whole", "false"),
    kOnEmbeddings.Refused("task", "write the model's instruction into input"),
    kOnEmbeddings.Refused("texts", "use input"),
    kOnEmbeddings.Dropped("timeout", "clients end requests by closing them"),
    kOnEmbeddings.Refused("truncate", "use truncate_prompt_tokens", R"(false, "NONE")"),
    kOnEmbeddings.Served("truncate_prompt_tokens",
                         "keeps so many tokens of a longer input; -1: as many as fit the context"),
    kOnEmbeddings.Refused("truncation", "use truncate_prompt_tokens", R"(false, "disabled")"),
    kOnEmbeddings.Refused("truncation_direction", "use truncation_side", R"("right", "Right")"),
    kOnEmbeddings.Served(
        "truncation_side",
        "`right` (the default) drops the last tokens, `left` the first; those that the tokenizer adds stay"),
    kOnEmbeddings.Dropped("ttl", "the model stays loaded"),
    kOnEmbeddings.Refused("use_activation", "use normalize", "true"),
    kOnEmbeddings.Dropped("user", "nobody is told apart by it"),
});

}  // namespace

std::span<const RequestField> EmbeddingFieldTable() {
  return kEmbeddingFields;
}

}  // namespace tandem
