// Checkpoints of a llama 1,024 wide with seeded codes, of the forms of weights that SmolLM2's rows of 576 do
// not divide into, and others. transformers computed the logits of each
// (tests/fixtures/quantized/make_wide_fixtures.py).
#pragma once

#include <string>
#include <vector>

namespace tandem {

// Of all that WriteWideCheckpoint knows: "Q4_K", "AWQ of 128".
std::vector<std::string> WideCheckpointNames();

// Writes what the model of this name consists of into a folder that is there. Every byte is a function of the
// name. Returns the path of the model: the folder, or a .gguf file in it.
std::string WriteWideCheckpoint(const std::string& name, const std::string& folder);

}  // namespace tandem
