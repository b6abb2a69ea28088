// "quantization_config" of a config.json: how the weights of a Hugging Face folder are quantized.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "load/json_fields.h"

namespace tandem {

enum class QuantizationMethod : uint8_t { kAwq, kGptq, kCompressedTensors, kFp8 };

// Weights of integers with scales by group.
struct IntegerScheme {
  int bits = 4;            // 4 or 8
  int64_t group_size = 0;  // in_features that share a scale; 0: all of a row
  bool symmetric = true;   // no zero points, or 2^(bits - 1) for all
};

struct QuantizationConfig {
  QuantizationMethod method = QuantizationMethod::kAwq;
  std::string where;  // the file and the field, for messages
  // What the weights of integers may be: one for all of AWQ and GPTQ, those of the groups of
  // compressed-tensors.
  std::vector<IntegerScheme> schemes;
  bool zeros_less_one = false;  // GPTQ's first format: zero points are stored minus one
  // FP8: rows and columns that share a scale; 0: a scale a tensor or a row.
  int64_t block_rows = 0;
  int64_t block_cols = 0;
};

// "AWQ", "GPTQ", "compressed-tensors", "FP8".
std::string_view QuantizationMethodName(QuantizationMethod method);

// Nothing if config (of a whole config.json) has no quantization_config. Errors: kMalformedFile names the
// field; kUnsupported.
Result<std::optional<QuantizationConfig>> ReadQuantizationConfig(const JsonFields& config);

}  // namespace tandem
