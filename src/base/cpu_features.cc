#include "base/cpu_features.h"

#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tandem {
namespace {

#if defined(__x86_64__)
// Linux saves the tile registers only for processes that asked for them, and refuses where it cannot.
bool RequestTiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

CpuFeatures Detect() {
  CpuFeatures features;
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kF16cBit = 1U << 29;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kF16cBit) != 0;
  // The compiler's run-time check also asks whether the operating system saves the registers.
  features.avx2 = f16c && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") != 0 &&
                    __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                    __builtin_cpu_supports("avx512vl") != 0;
  features.signature = eax;
  // Base family 15 plus the extended one, of the same leaf.
  const unsigned family = ((eax >> 8) & 0xfU) + ((eax >> 20) & 0xffU);
  constexpr unsigned kZen3And4 = 0x19;
  features.zen4 = __builtin_cpu_is("amd") != 0 && features.avx512 && family == kZen3And4;
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16") != 0 &&
                         __builtin_cpu_supports("avx512vnni") != 0;
  constexpr unsigned kAmxBf16Bit = 1U << 22;
  constexpr unsigned kAmxTileBit = 1U << 24;
  constexpr unsigned kAmxInt8Bit = 1U << 25;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    constexpr unsigned kAmxBits = kAmxBf16Bit | kAmxTileBit | kAmxInt8Bit;
    features.amx_bf16 = features.avx512_bf16 && (edx & kAmxBits) == kAmxBits && RequestTiles();
  }
#elif defined(__aarch64__)
  const auto has = [](unsigned long type, unsigned long bits) { return (getauxval(type) & bits) == bits; };
  features.neon = true;
  features.neon_dot = has(AT_HWCAP, HWCAP_ASIMDDP);
  features.neon_bf16 = features.neon_dot && has(AT_HWCAP2, HWCAP2_BF16 | HWCAP2_I8MM);
  if (has(AT_HWCAP, HWCAP_CPUID)) {  // Linux answers for the register, which programs may not read
    uint64_t midr = 0;
    __asm__("mrs %0, MIDR_EL1" : "=r"(midr));
    features.signature = static_cast<uint32_t>(midr);
  }
#endif
  return features;
}

}  // namespace

const CpuFeatures& HostCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

std::string CpuFeaturesText() {
  const CpuFeatures& features = HostCpuFeatures();
  std::string text;
  const auto add = [&text](bool present, const char* name) {
    if (present) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add(features.avx2, "AVX2");
  add(features.avx512, "AVX-512");
  add(features.avx512_bf16, "AVX-512 BF16");
  add(features.amx_bf16, "AMX BF16");
  add(features.neon, "NEON");
  add(features.neon_dot, "NEON dot products");
  add(features.neon_bf16, "NEON BF16");
  return text.empty() ? "none" : text;
}

}  // namespace tandem
