#include "engine/longest_context.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/round_up.h"

namespace tandem {

int64_t TransitTokens(const EngineOptions& options, const KvShape& shape) {
  constexpr int64_t kLongPrompt = 16'384;
  const int64_t least = 2 * options.max_num_batched_tokens;
  if (!options.kv_transit) return std::max(least, std::min(options.max_model_len, kLongPrompt));
  const int64_t amount = options.kv_transit->amount;
  if (options.kv_transit->unit == CacheSize::Unit::kTokens) return RoundUp(amount, shape.block_size);
  constexpr int64_t kNumSlots = 2;
  return amount / (kNumSlots * static_cast<int64_t>(shape.BlockBytes())) * shape.block_size;
}

LongestContext FindLongestContext(int64_t wanted_tokens, int64_t gpu_tokens, int64_t cpu_tokens,
                                  int64_t transit_tokens) {
  const int64_t through_transit = std::min(cpu_tokens, transit_tokens);
  const int64_t possible = std::max(gpu_tokens, through_transit);
  LongestContext longest{.tokens = std::min(wanted_tokens, possible)};
  if (wanted_tokens <= possible) {
    longest.why = gpu_tokens >= wanted_tokens ? "the gpu tier holds it"
                                              : "the cpu tier holds it and it passes through --kv-transit";
  } else if (cpu_tokens == 0) {
    longest.why =
        fmt::format("the gpu tier holds {} tokens (--gpu-kv-cache), and there is no cpu tier", gpu_tokens);
  } else if (transit_tokens < cpu_tokens) {
    longest.why = fmt::format(
        "the gpu tier holds {} tokens, and of a context in the cpu tier {} pass through the "
        "device (--kv-transit)",
        gpu_tokens, transit_tokens);
  } else {
    longest.why =
        fmt::format("the gpu tier holds {} tokens and the cpu tier {} (--gpu-kv-cache, --cpu-kv-cache)",
                    gpu_tokens, cpu_tokens);
  }
  return longest;
}

}  // namespace tandem
