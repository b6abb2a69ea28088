// Instruction sets that have kernels of their own.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

enum class CpuIsa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

std::string_view CpuIsaName(CpuIsa isa);
// What this processor can run, weakest first; never empty.
std::vector<CpuIsa> SupportedCpuIsas();
inline CpuIsa BestCpuIsa() {
  return SupportedCpuIsas().back();
}
// Whether the processor has AMX tiles for bf16.
bool CpuHasAmxBf16();

}  // namespace tandem
