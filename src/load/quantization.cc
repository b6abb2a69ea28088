#include "load/quantization.h"

#include <cstring>

#include "base/check.h"
#include "load/conversion_sets.h"

namespace tandem {
namespace {

constexpr BlockFormat kFormats[] = {
    {GgmlType::kF32, "F32", 1, 4},       {GgmlType::kF16, "F16", 1, 2},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},   {GgmlType::kQ4_1, "Q4_1", 32, 20},
    {GgmlType::kQ5_0, "Q5_0", 32, 22},   {GgmlType::kQ5_1, "Q5_1", 32, 24},
    {GgmlType::kQ8_0, "Q8_0", 32, 34},   {GgmlType::kQ4_K, "Q4_K", 256, 144},
    {GgmlType::kQ5_K, "Q5_K", 256, 176}, {GgmlType::kQ6_K, "Q6_K", 256, 210},
    {GgmlType::kBF16, "BF16", 1, 2},
};

bool CpuHasAvx2() {
#ifdef TANDEM_LOAD_HAS_AVX2
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

ConvertFunction ChooseConvert(GgmlType type) {
#ifdef TANDEM_LOAD_HAS_AVX2
  // The compiler's 256-bit code for nibbles in groups of 16 is slower than its 128-bit code.
  const bool short_groups = type == GgmlType::kQ4_0 || type == GgmlType::kQ4_1;
  static const bool has_avx2 = CpuHasAvx2();
  if (has_avx2 && !short_groups) return ConvertAvx2;
#else
  static_cast<void>(type);
#endif
  return ConvertBaseline;
}

}  // namespace

const BlockFormat* FindBlockFormat(uint32_t type_code) {
  for (const BlockFormat& format : kFormats) {
    if (static_cast<uint32_t>(format.type) == type_code) return &format;
  }
  return nullptr;
}

const BlockFormat& GetBlockFormat(GgmlType type) {
  const BlockFormat* format = FindBlockFormat(static_cast<uint32_t>(type));
  TANDEM_CHECK(format != nullptr, "type code {}", static_cast<uint32_t>(type));
  return *format;
}

void ConvertElements(GgmlType type, const uint8_t* src, int64_t num_elements, DType dtype, void* dst) {
  TANDEM_CHECK(IsFloatType(dtype), "conversion to {}", DTypeName(dtype));
  const BlockFormat& format = GetBlockFormat(type);
  TANDEM_CHECK(num_elements >= 0 && num_elements % format.block_elements == 0, "{} values of {}",
               num_elements, format.name);
  if ((type == GgmlType::kF16 && dtype == DType::kF16) ||
      (type == GgmlType::kBF16 && dtype == DType::kBF16)) {
    if (num_elements > 0) std::memcpy(dst, src, static_cast<size_t>(num_elements) * 2);
    return;
  }
  if (num_elements == 0) return;
  ChooseConvert(type)(type, format.block_elements, format.block_bytes, src, num_elements, dtype, dst);
}

std::string_view ConversionInstructionSet() {
  return CpuHasAvx2() ? "avx2" : "baseline";
}

}  // namespace tandem
