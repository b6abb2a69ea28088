#include "load/config_limits.h"

namespace tandem {

Status CheckModelConfig(const ModelConfig& config, const std::string& source) {
  if (config.num_heads % config.num_kv_heads != 0) {
    return MakeError(ErrorCode::kMalformedFile,
                     "{}: {} attention heads do not divide among {} key/value heads", source,
                     config.num_heads, config.num_kv_heads);
  }
  if (config.head_dim % 2 != 0) {
    return MakeError(ErrorCode::kMalformedFile, "{}: head size {} is odd, rotary embeddings need pairs",
                     source, config.head_dim);
  }
  return {};
}

}  // namespace tandem
