// Families of models whose layers are mixtures of experts. They are known by name so that what is said of
// them is more than that an architecture is unknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

// architecture: a Hugging Face class ("Qwen3MoeForCausalLM"), its model type or a GGUF architecture
// ("qwen3moe"). "Qwen3 MoE"; empty if it is none of a family that is known.
std::string_view MixtureFamily(std::string_view architecture);

// kUnsupported, one sentence. source: the file. num_experts: 0 if it is not known.
Error MixtureNotServed(const std::string& source, std::string_view architecture, int64_t num_experts);

}  // namespace tandem
