// Blocks of quantized GGUF tensors taken apart into codes, scales and minimums.
#pragma once

#include <cstdint>

#include "base/quantized_rows.h"
#include "base/weight_format.h"
#include "load/quantization.h"

namespace tandem {

// The format that holds the values of a type exactly: 4 bits for those of 4 bits, else 8. kFloat for plain
// types.
WeightFormat WeightFormatOf(GgmlType type);

// A row of rows->cols values (a multiple of the type's block) at src becomes row `row` of rows, which has the
// type's format and room. scale * (code - zero) and scale * code + minimum have the bits that ConvertElements
// gives. Thread-safe for different rows.
void SplitBlocks(GgmlType type, const uint8_t* src, int64_t row, QuantizedRows* rows);

}  // namespace tandem
