// What GGUF metadata says about the model, and how GGUF tensor names translate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "load/gguf_file.h"
#include "load/model_config.h"

namespace tandem {

// kUnsupported, naming the family, if the metadata is that of a mixture of experts.
Status RefuseMixtures(const GgufFile& file);

// Architectures llama, qwen2 and qwen3. Errors: kMalformedFile names the key; kUnsupported.
Result<ModelConfig> ReadGgufConfig(const GgufFile& file);

// Token ids of the tokenizer's metadata: BOS; EOS, end of turn and end of message as ends of a sequence.
Result<GenerationDefaults> ReadGgufGenerationDefaults(const GgufFile& file);

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A name without a counterpart stays.
std::string HuggingFaceTensorName(std::string_view gguf_name);

// Heads by which the converter interleaved the rows of this tensor (Hugging Face name), 0 if it did not.
int64_t NumPermutedHeads(const ModelConfig& config, std::string_view name);

}  // namespace tandem
