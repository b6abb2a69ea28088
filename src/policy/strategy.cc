#include "policy/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/param_error.h"
#include "policy/apex.h"
#include "policy/asymmetric.h"
#include "policy/async.h"
#include "policy/auto.h"
#include "policy/full_offload.h"
#include "policy/gpu_only.h"
#include "policy/simple_offload.h"
#include "policy/symmetric.h"

namespace tandem {
namespace {

template <typename T>
std::unique_ptr<Strategy> Make(const LayerCosts* costs) {
  return std::make_unique<T>(costs);
}

struct KnownStrategy {
  std::string_view name;
  std::unique_ptr<Strategy> (*make)(const LayerCosts* costs);
};

constexpr std::array kStrategies = {
    KnownStrategy{"auto", Make<AutoStrategy>},
    KnownStrategy{"gpu-only", Make<GpuOnlyStrategy>},
    KnownStrategy{"simple-offload", Make<SimpleOffloadStrategy>},
    KnownStrategy{"symmetric", Make<SymmetricStrategy>},
    KnownStrategy{"full-offload", Make<FullOffloadStrategy>},
    KnownStrategy{"asymmetric", Make<AsymmetricStrategy>},
    KnownStrategy{"async", Make<AsyncStrategy>},
    KnownStrategy{"apex", Make<ApexStrategy>},
};

}  // namespace

Result<std::unique_ptr<Strategy>> CreateStrategy(std::string_view name, const LayerCosts* costs) {
  for (const KnownStrategy& strategy : kStrategies) {
    if (strategy.name == name) return strategy.make(costs);
  }
  return MakeParamError(ErrorCode::kUnsupported, "strategy",
                        "strategy '{}' is not available in this build; there are: {}", name,
                        fmt::join(StrategyNames(), ", "));
}

Status CheckStrategyName(std::string_view name) {
  const std::vector<std::string_view> names = StrategyNames();
  if (std::find(names.begin(), names.end(), name) != names.end()) return {};
  return MakeParamError(ErrorCode::kInvalidArgument, "strategy", "there is no strategy '{}'; there are: {}",
                        name, fmt::join(names, ", "));
}

std::vector<std::string_view> StrategyNames() {
  std::vector<std::string_view> names;
  names.reserve(kStrategies.size());
  for (const KnownStrategy& strategy : kStrategies) names.push_back(strategy.name);
  return names;
}

}  // namespace tandem
