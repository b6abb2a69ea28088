// A GGUF file whose matrices of 4 bits are of another type, for tests of types that the real model's file has
// not.
#pragma once

#include <string>

#include "load/quantization.h"

namespace tandem {

// Writes `from` to `to` with every tensor of type `old_type` as `new_type`, kQ4_0 or kQ8_0, rounded to the
// nearest codes (QuantizeRows); all else as it is. Every byte follows from the file. CHECKs that it can be
// done.
void WriteRequantizedGguf(const std::string& from, GgmlType old_type, GgmlType new_type,
                          const std::string& to);

}  // namespace tandem
