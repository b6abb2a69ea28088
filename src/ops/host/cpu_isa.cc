#include "ops/host/cpu_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tandem {

std::string_view CpuIsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kAvx2:
      return "AVX2";
    case CpuIsa::kAvx512:
      return "AVX-512";
    case CpuIsa::kAvx512Bf16:
      return "AVX-512 BF16";
  }
  return "?";
}

std::vector<CpuIsa> SupportedCpuIsas() {
  std::vector<CpuIsa> isas = {CpuIsa::kPortable};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(CpuIsa::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    isas.push_back(CpuIsa::kAvx512);
    if (__builtin_cpu_supports("avx512bf16")) isas.push_back(CpuIsa::kAvx512Bf16);
  }
#endif
  return isas;
}

bool CpuHasAmxBf16() {
#if defined(__x86_64__)
  // Leaf 7: EDX bit 22 is AMX-BF16, bit 24 AMX-TILE.
  constexpr unsigned int kAmx = (1U << 22) | (1U << 24);
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmx) == kAmx;
#else
  return false;
#endif
}

}  // namespace tandem
