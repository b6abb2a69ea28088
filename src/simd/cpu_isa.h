// Instruction sets that have kernels of their own.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

// Each runs everything that the ones before it run. kAvx512Ymm: AVX-512 BF16 with its 32 registers, in
// vectors of 256 bits: for processors that take two passes over 512 (Zen 4). kAmx: AMX tiles for bf16,
// besides AVX-512 BF16.
enum class CpuIsa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAvx512Ymm, kAmx };

std::string_view CpuIsaName(CpuIsa isa);
// What this program has kernels for, weakest first: kPortable, and on x86-64 all the others.
std::vector<CpuIsa> CompiledCpuIsas();
// Those of them that this processor can run, weakest first; never empty.
std::vector<CpuIsa> SupportedCpuIsas();
// The strongest of them, kAvx512Ymm only where 512 bits are known to take two passes. For a given use another
// one may be faster: the trial finds out (trial/).
CpuIsa BestCpuIsa();

}  // namespace tandem
