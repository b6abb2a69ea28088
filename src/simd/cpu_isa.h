// Instruction sets that have kernels of their own.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

// Each runs everything that the ones before it run. kAmx: AMX tiles for bf16, besides AVX-512 BF16.
enum class CpuIsa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };

std::string_view CpuIsaName(CpuIsa isa);
// What this processor can run, weakest first; never empty.
std::vector<CpuIsa> SupportedCpuIsas();
inline CpuIsa BestCpuIsa() {
  return SupportedCpuIsas().back();
}

}  // namespace tandem
