// Blocks of quantized GGUF tensors taken apart into codes, scales and minimums.
#pragma once

#include <cstdint>

#include "base/weight_format.h"
#include "load/quantization.h"

namespace tandem {

// The format that holds the values of a type exactly: 4 bits for those of 4 bits, else 8. kFloat for plain
// types.
WeightFormat WeightFormatOf(GgmlType type);

// num_elements values (a multiple of the type's block) at src. codes: one a value, in order; scales and, for
// formats with minimum, minimums: one a group of the format. scale * (code - zero) and scale * code + minimum
// have the bits that ConvertElements gives. Thread-safe.
void SplitBlocks(GgmlType type, const uint8_t* src, int64_t num_elements, uint8_t* codes, float* scales,
                 float* minimums);

}  // namespace tandem
