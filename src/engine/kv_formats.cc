#include "engine/kv_formats.h"

#include <string_view>

#include "base/param_error.h"

namespace tandem {
namespace {

constexpr std::string_view kGpuFlag = "kv-cache-dtype";
constexpr std::string_view kCpuFlag = "cpu-kv-cache-dtype";

Result<KvFormat> FormatOf(std::string_view name, std::string_view flag, DType dtype, int64_t head_dim) {
  if (name == "auto") return KvFormat::Plain(dtype);
  if (name == "fp8") {
    return MakeParamError(ErrorCode::kUnsupported, flag, "--{}: fp8 is not supported yet; auto and int8 are",
                          flag);
  }
  if (name != "int8") {
    return MakeParamError(ErrorCode::kInvalidArgument, flag, "--{}: '{}' is neither auto nor int8", flag,
                          name);
  }
  constexpr int64_t kMaxHeadDim = 256;  // beyond, sums of products might leave 32 bits
  if (head_dim % 16 != 0 || head_dim > kMaxHeadDim) {
    return MakeParamError(ErrorCode::kUnsupported, flag,
                          "--{}: int8 wants heads of a multiple of 16 and at most {}, the model's are of {}",
                          flag, kMaxHeadDim, head_dim);
  }
  return KvFormat::Int8();
}

}  // namespace

Result<KvFormats> KvFormatsOf(const EngineOptions& options, DType dtype, int64_t head_dim) {
  KvFormats formats;
  TANDEM_ASSIGN_OR_RETURN(formats.gpu, FormatOf(options.kv_cache_dtype, kGpuFlag, dtype, head_dim));
  TANDEM_ASSIGN_OR_RETURN(formats.cpu, FormatOf(options.cpu_kv_cache_dtype, kCpuFlag, dtype, head_dim));
  return formats;
}

}  // namespace tandem
