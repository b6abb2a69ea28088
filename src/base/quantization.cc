#include "base/quantization.h"

#include <array>
#include <bit>

#include "base/check.h"
#include "base/param_error.h"

namespace tandem {
namespace {

constexpr std::array kQuantizations = {Quantization::kAuto, Quantization::kKeep, Quantization::kNone,
                                       Quantization::kInt4, Quantization::kInt8, Quantization::kFp8};

}  // namespace

std::span<const Quantization> AllQuantizations() {
  return kQuantizations;
}

std::string_view QuantizationName(Quantization quantization) {
  switch (quantization) {
    case Quantization::kAuto:
      return "auto";
    case Quantization::kKeep:
      return "keep";
    case Quantization::kNone:
      return "none";
    case Quantization::kInt4:
      return "int4";
    case Quantization::kInt8:
      return "int8";
    case Quantization::kFp8:
      return "fp8";
  }
  return "?";
}

Result<Quantization> ParseQuantization(std::string_view name) {
  for (const Quantization quantization : kQuantizations) {
    if (QuantizationName(quantization) == name) return quantization;
  }
  return MakeParamError(ErrorCode::kInvalidArgument, "quantization",
                        "'{}' is none of auto, keep, none, int4, int8, fp8", name);
}

WeightFormat QuantizedFormat(Quantization quantization, int64_t in_features, bool is_vocabulary,
                             int64_t largest_group) {
  TANDEM_CHECK(QuantizesFloats(quantization), "quantization {}", QuantizationName(quantization));
  constexpr int64_t kSmallestGroup = 16;
  auto group = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(largest_group)));
  while (group >= kSmallestGroup && in_features % group != 0) group /= 2;
  if (group < kSmallestGroup) return {};
  if (quantization == Quantization::kFp8) return Fp8Format(in_features);
  return quantization == Quantization::kInt4 && !is_vocabulary ? Int4Format(group, true)
                                                               : Int8Format(group, false);
}

}  // namespace tandem
