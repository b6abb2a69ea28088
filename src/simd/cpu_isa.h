// Instruction sets that have kernels of their own.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

// Of a family of processors, each runs everything that the ones before it run. kNeonDot: with dot products of
// int8. kNeonBf16: besides, bf16 and products of small matrices of both (I8MM). kAvx512Ymm: AVX-512 BF16 with
// its 32 registers, in vectors of 256 bits: for processors that take two passes over 512 (Zen 4). kAmx: AMX
// tiles for bf16, besides AVX-512 BF16.
enum class CpuIsa : uint8_t {
  kPortable,
  kNeon,
  kNeonDot,
  kNeonBf16,
  kAvx2,
  kAvx512,
  kAvx512Bf16,
  kAvx512Ymm,
  kAmx
};

std::string_view CpuIsaName(CpuIsa isa);
// As flags take it: avx512_bf16.
std::string_view CpuIsaShortName(CpuIsa isa);
// What this program has kernels for, weakest first: kPortable and those of its family of processors.
std::vector<CpuIsa> CompiledCpuIsas();
// Those of them that this processor can run, weakest first; never empty.
std::vector<CpuIsa> SupportedCpuIsas();
// The strongest of them, kAvx512Ymm only where 512 bits are known to take two passes. For a given use another
// one may be faster: the trial finds out (trial/).
CpuIsa BestCpuIsa();

}  // namespace tandem
