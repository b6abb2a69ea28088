// Block formats of stored tensors and their conversion to the engine's floating-point types.
//
// A row is a sequence of blocks of block_elements values in block_bytes bytes; plain types have blocks of
// one.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace tandem {

// Type codes as GGUF stores them.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct BlockFormat {
  GgmlType type = GgmlType::kF32;
  std::string_view name;  // "Q4_1"
  uint32_t block_elements = 1;
  uint32_t block_bytes = 4;
};

// nullptr if the code is not one of GgmlType.
const BlockFormat* FindBlockFormat(uint32_t type_code);
const BlockFormat& GetBlockFormat(GgmlType type);

// Converts num_elements values (a multiple of block_elements) at src to dtype (kF32, kBF16 or kF16) at dst.
// src needs no alignment, dst that of its elements; the two must not overlap. Values are computed in fp32 and
// rounded once. Thread-safe.
void ConvertElements(GgmlType type, const uint8_t* src, int64_t num_elements, DType dtype, void* dst);

// The widest instruction set that ConvertElements uses on this machine: "avx2" or "baseline".
std::string_view ConversionInstructionSet();

}  // namespace tandem
