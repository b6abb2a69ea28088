// Rotary position embedding: angles for every position, with the scaling of long-context models.
#pragma once

#include <cstdint>
#include <vector>

#include "load/model_config.h"

namespace tandem {

// Inverse frequencies of the head_dim / 2 pairs, scaled as config.rope_scaling or config.rope_freq_divisors
// say (Llama 3.1's frequency-dependent scaling, YaRN, linear scaling, or none).
std::vector<float> RopeInverseFrequencies(const ModelConfig& config);

// [max_position, head_dim] fp32: cos of the head_dim / 2 pairs, then sin, both times the
// attention factor of the scaling: q and k carry it, their products its square.
std::vector<float> BuildRopeTable(const ModelConfig& config, int64_t max_position);

}  // namespace tandem
