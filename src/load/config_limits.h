// Bounds of what a configuration may say. Far above published models, low enough that no product of two
// overflows and no file makes the loader allocate much before its tensors are checked.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "load/model_config.h"

namespace tandem {

inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHiddenSize = int64_t{1} << 20;
inline constexpr int64_t kMaxIntermediateSize = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = int64_t{1} << 14;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 14;
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 26;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;
inline constexpr double kMaxRopeTheta = 1e15;
inline constexpr double kMaxRopeFactor = 1e6;

// What no single field shows: heads divisible by key/value heads, an even head_dim.
// source: the file, for messages. Errors: kMalformedFile.
Status CheckModelConfig(const ModelConfig& config, const std::string& source);

}  // namespace tandem
