// What becomes of a model's weights when they are loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/weight_format.h"

namespace tandem {

// kAuto, and kKeep by another name: what the file has quantized stays so where the backend multiplies it as
// it is; all else is the engine's dtype. kNone: everything is. kInt4, kInt8, kFp8: what the file has as
// floats is quantized too.
enum class Quantization : uint8_t { kAuto, kKeep, kNone, kInt4, kInt8, kFp8 };

constexpr bool QuantizesFloats(Quantization quantization) {
  return quantization == Quantization::kInt4 || quantization == Quantization::kInt8 ||
         quantization == Quantization::kFp8;
}

std::span<const Quantization> AllQuantizations();
std::string_view QuantizationName(Quantization quantization);
// "auto", "keep", "none", "int4", "int8", "fp8". Errors: kInvalidArgument, param "quantization".
Result<Quantization> ParseQuantization(std::string_view name);

// What floats are quantized to, kInt4, kInt8 or kFp8, in rows of in_features. Integers: 4 bits with a
// minimum, 8 without, in the largest groups of a power of two from 16 up to largest_group; the vocabulary
// (embedding and lm_head) has 8 bits either way. FP8: a scale a row. kFloat if no group, or 16, divides the
// rows.
WeightFormat QuantizedFormat(Quantization quantization, int64_t in_features, bool is_vocabulary,
                             int64_t largest_group);

}  // namespace tandem
