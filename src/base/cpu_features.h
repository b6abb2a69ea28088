// Instruction sets of this CPU that Tandem has code for.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

struct CpuFeatures {
  uint32_t signature = 0;    // CPUID's family, model and stepping, or MIDR_EL1; 0 where there is none
  bool zen4 = false;         // AMD family 19h with AVX-512: 512-bit operations take two passes
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_bf16 = false;  // and VNNI: no processor has the one without the other
  bool amx_bf16 = false;     // and AMX INT8, and the operating system lets this process use the tiles
  bool neon = false;         // every 64-bit Arm processor
  bool neon_dot = false;     // dot products of int8 (FEAT_DotProd)
  bool neon_bf16 = false;    // and FEAT_BF16 and FEAT_I8MM: no processor has the one without the other

  // Whether vectors of bf16 are multiplied without being widened.
  bool multiplies_bf16() const { return avx512_bf16 || neon_bf16; }
};

// Read once, then cached. Any thread. The first call asks Linux for the AMX tiles on behalf of the process.
const CpuFeatures& HostCpuFeatures();

// "AVX2, AVX-512, AVX-512 BF16", or "none" for a CPU that runs only the portable code.
std::string CpuFeaturesText();

}  // namespace tandem
