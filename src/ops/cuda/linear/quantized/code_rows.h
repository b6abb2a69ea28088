// When weights of codes are multiplied as codes.
#pragma once

#include <cstdint>

namespace tandem {

// Which rows a quantized weight is multiplied with as codes. Of others it is dequantized, in slabs of
// outputs, and cuBLASLt multiplies: that reads and writes some 9 times the bytes of 4 bits, once.
struct CodeRows {
  // By the kernels that need no more than compute capability 8.0, at most.
  int64_t max = 128;
  // By streamed products of codes (compute capability 9.0), at least.
  int64_t min_streamed = 9;
};

}  // namespace tandem
