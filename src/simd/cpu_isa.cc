#include "simd/cpu_isa.h"

#include "base/cpu_features.h"

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
    case CpuIsa::kAvx512Ymm:
      return "AVX-512 BF16, 256-bit vectors";
    case CpuIsa::kAmx:
      return "AMX";
  }
  return "?";
}

std::vector<CpuIsa> SupportedCpuIsas() {
  const CpuFeatures& features = HostCpuFeatures();
  std::vector<CpuIsa> isas = {CpuIsa::kPortable};
  if (features.avx2) isas.push_back(CpuIsa::kAvx2);
  if (features.avx512) isas.push_back(CpuIsa::kAvx512);
  if (features.avx512_bf16) isas.push_back(CpuIsa::kAvx512Bf16);
  if (features.avx512_bf16 && features.zen4) isas.push_back(CpuIsa::kAvx512Ymm);
  if (features.amx_bf16) isas.push_back(CpuIsa::kAmx);
  return isas;
}

}  // namespace tandem
