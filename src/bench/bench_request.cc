#include "bench/bench_request.h"

#include <utility>

#include "base/dtype.h"
#include "load/model_config.h"

namespace tandem {

RequestSpec MakeBenchRequest(const WorkloadRequest& request, std::vector<int32_t> prompt) {
  const int64_t num_left = request.output_tokens - request.made_tokens;
  RequestSpec spec;
  spec.prompt_tokens = std::move(prompt);
  spec.sampling.max_tokens = num_left;
  spec.sampling.min_tokens = num_left;
  spec.sampling.ignore_eos = true;
  spec.sampling.temperature = 0;
  return spec;
}

std::string ReasonOfFailure(const RequestOutput& output) {
  if (output.error) return output.error->message;
  if (output.finish_reason == FinishReason::kLength) return {};
  return "ended with finish reason " + std::string(FinishReasonName(output.finish_reason));
}

int64_t KvBytesPerToken(const Engine& engine) {
  return engine.kv_token_bytes(Tier::kCpu);
}

}  // namespace tandem
