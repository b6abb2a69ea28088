#include "simd/cpu_isa.h"

#include "base/cpu_features.h"

namespace tandem {
namespace {

bool IsSupported(CpuIsa isa, const CpuFeatures& features) {
  switch (isa) {
    case CpuIsa::kPortable:
      return true;
    case CpuIsa::kNeon:
      return features.neon;
    case CpuIsa::kNeonDot:
      return features.neon_dot;
    case CpuIsa::kNeonBf16:
      return features.neon_bf16;
    case CpuIsa::kAvx2:
      return features.avx2;
    case CpuIsa::kAvx512:
      return features.avx512;
    case CpuIsa::kAvx512Bf16:
    case CpuIsa::kAvx512Ymm:
      return features.avx512_bf16;
    case CpuIsa::kAmx:
      return features.amx_bf16;
  }
  return false;
}

}  // namespace

CpuIsa BestCpuIsa() {
  std::vector<CpuIsa> isas = SupportedCpuIsas();
  if (!HostCpuFeatures().zen4) std::erase(isas, CpuIsa::kAvx512Ymm);
  return isas.back();
}

std::string_view CpuIsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kNeon:
      return "NEON";
    case CpuIsa::kNeonDot:
      return "NEON dot products";
    case CpuIsa::kNeonBf16:
      return "NEON BF16";
    case CpuIsa::kAvx2:
      return "AVX2";
    case CpuIsa::kAvx512:
      return "AVX-512";
    case CpuIsa::kAvx512Bf16:
      return "AVX-512 BF16";
    case CpuIsa::kAvx512Ymm:
      return "AVX-512 BF16, 256-bit vectors";
    case CpuIsa::kAmx:
      return "AMX";
  }
  return "?";
}

std::string_view CpuIsaShortName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kNeon:
      return "neon";
    case CpuIsa::kNeonDot:
      return "neon_dot";
    case CpuIsa::kNeonBf16:
      return "neon_bf16";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Bf16:
      return "avx512_bf16";
    case CpuIsa::kAvx512Ymm:
      return "avx512_ymm";
    case CpuIsa::kAmx:
      return "amx";
  }
  return "?";
}

std::vector<CpuIsa> CompiledCpuIsas() {
#if defined(__x86_64__)
  return {CpuIsa::kPortable,   CpuIsa::kAvx2,      CpuIsa::kAvx512,
          CpuIsa::kAvx512Bf16, CpuIsa::kAvx512Ymm, CpuIsa::kAmx};
#elif defined(__aarch64__)
  return {CpuIsa::kPortable, CpuIsa::kNeon, CpuIsa::kNeonDot, CpuIsa::kNeonBf16};
#else
  return {CpuIsa::kPortable};
#endif
}

std::vector<CpuIsa> SupportedCpuIsas() {
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : CompiledCpuIsas()) {
    if (IsSupported(isa, HostCpuFeatures())) isas.push_back(isa);
  }
  return isas;
}

}  // namespace tandem
