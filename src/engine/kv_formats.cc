#include "engine/kv_formats.h"

#include <string_view>

#include "base/param_error.h"
#include "cpu_attention/kv_block.h"

namespace tandem {
namespace {

constexpr std::string_view kGpuFlag = "kv-cache-dtype";
constexpr std::string_view kCpuFlag = "cpu-kv-cache-dtype";

// A tier of codes of this format.
Result<KvFormat> Coded(const KvFormat& format, std::string_view flag, int64_t head_dim) {
  if (head_dim % 16 != 0 || head_dim > kMaxCodedHeadDim) {
    return MakeParamError(ErrorCode::kUnsupported, flag,
                          "--{}: {} wants heads of a multiple of 16 and at most {}, the model's are of {}",
                          flag, KvFormatName(format), kMaxCodedHeadDim, head_dim);
  }
  return format;
}

Result<KvFormat> GpuFormat(std::string_view name, DType dtype, int64_t head_dim) {
  if (name == "auto") return KvFormat::Plain(dtype);
  if (name == "int8") return Coded(KvFormat::Int8(), kGpuFlag, head_dim);
  if (name == "fp8") return Coded(KvFormat::Fp8(), kGpuFlag, head_dim);
  return MakeParamError(ErrorCode::kInvalidArgument, kGpuFlag, "--{}: '{}' is none of auto, fp8 and int8",
                        kGpuFlag, name);
}

Result<KvFormat> CpuFormat(std::string_view name, DType dtype, int64_t head_dim, const KvFormat& gpu) {
  // Beside fp8 the model's type holds what fp8 does: a request's tokens do not depend on its tier.
  if (name == "auto") return gpu == KvFormat::Fp8() ? KvFormat::PlainOfFp8(dtype) : KvFormat::Plain(dtype);
  if (name == "int8") return Coded(KvFormat::Int8(), kCpuFlag, head_dim);
  if (name == "fp8") {
    return MakeParamError(ErrorCode::kUnsupported, kCpuFlag,
                          "--{}: fp8 is for the gpu tier alone; auto and int8 are for the cpu tier",
                          kCpuFlag);
  }
  return MakeParamError(ErrorCode::kInvalidArgument, kCpuFlag, "--{}: '{}' is neither auto nor int8",
                        kCpuFlag, name);
}

}  // namespace

Result<KvFormats> KvFormatsOf(const EngineOptions& options, DType dtype, int64_t head_dim) {
  KvFormats formats;
  TANDEM_ASSIGN_OR_RETURN(formats.gpu, GpuFormat(options.kv_cache_dtype, dtype, head_dim));
  TANDEM_ASSIGN_OR_RETURN(formats.cpu, CpuFormat(options.cpu_kv_cache_dtype, dtype, head_dim, formats.gpu));
  return formats;
}

}  // namespace tandem
