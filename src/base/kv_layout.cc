#include "base/kv_layout.h"

#include "base/check.h"

namespace tandem {
namespace {

std::string_view ScaleName(ScaleKind scales) {
  switch (scales) {
    case ScaleKind::kNone:
      return "no scales";
    case ScaleKind::kPerToken:
      return "a scale for each token";
  }
  return "?";
}

}  // namespace

std::string KvFormatName(const KvFormat& format) {
  if (format == KvFormat::Int8()) return std::string(DTypeName(DType::kI8));
  if (format == KvFormat::Fp8()) return "fp8";
  if (format == KvFormat::Plain(format.k_type)) return std::string(DTypeName(format.k_type));
  if (format == KvFormat::PlainOfFp8(format.k_type))
    return fmt::format("{} of fp8's numbers", DTypeName(format.k_type));
  return fmt::format("K {}, V {}, {}", DTypeName(format.k_type), DTypeName(format.v_type),
                     ScaleName(format.scales));
}

DType KvShape::plain_dtype() const {
  TANDEM_CHECK(format.is_plain(format.k_type), "KV of one type without scales is wanted: {}",
               KvFormatName(format));
  return format.k_type;
}

}  // namespace tandem
