// The flag that sizes a tier, as errors name it.
#pragma once

#include <string_view>

#include "plan/iteration_plan.h"

namespace tandem {

constexpr std::string_view TierFlag(Tier tier) {
  return tier == Tier::kGpu ? "gpu-kv-cache" : "cpu-kv-cache";
}

}  // namespace tandem
