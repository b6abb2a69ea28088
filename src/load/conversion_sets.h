// ConvertElements, compiled once per instruction set. Use ConvertElements (load/quantization.h): it picks.
#pragma once

#include <cstdint>

#include "load/quantization.h"

namespace tandem {

using ConvertFunction = void (*)(GgmlType type, uint32_t block_elements, uint32_t block_bytes,
                                 const uint8_t* src, int64_t num_elements, DType dtype, void* dst);

void ConvertBaseline(GgmlType type, uint32_t block_elements, uint32_t block_bytes, const uint8_t* src,
                     int64_t num_elements, DType dtype, void* dst);
// Only on x86-64, and only called where the CPU has AVX2.
void ConvertAvx2(GgmlType type, uint32_t block_elements, uint32_t block_bytes, const uint8_t* src,
                 int64_t num_elements, DType dtype, void* dst);

}  // namespace tandem
