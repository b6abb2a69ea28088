#include "schedule/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/param_error.h"
#include "schedule/apex.h"
#include "schedule/asymmetric.h"
#include "schedule/async.h"
#include "schedule/auto.h"
#include "schedule/full_offload.h"
#include "schedule/gpu_only.h"
#include "schedule/simple_offload.h"
#include "schedule/switching.h"
#include "schedule/symmetric.h"

namespace tandem {
namespace {

template <typename T>
std::unique_ptr<Strategy> MakeWithCosts(const LayerCosts* costs) {
  TANDEM_CHECK(costs != nullptr, "a strategy that uses the cpu tier was created without costs");
  return std::make_unique<T>(*costs);
}

std::unique_ptr<Strategy> MakeGpuOnly(const LayerCosts* costs) {
  return std::make_unique<GpuOnlyStrategy>(costs);
}

struct KnownStrategy {
  std::string_view name;
  bool uses_cpu_tier;
  bool rides;
  std::unique_ptr<Strategy> (*make)(const LayerCosts* costs);
};

constexpr std::array kStrategies = {
    KnownStrategy{"auto", true, true, MakeWithCosts<AutoStrategy>},
    KnownStrategy{"gpu-only", false, false, MakeGpuOnly},
    KnownStrategy{"simple-offload", true, false, MakeWithCosts<SimpleOffloadStrategy>},
    KnownStrategy{"symmetric", true, false, MakeWithCosts<SymmetricStrategy>},
    KnownStrategy{"full-offload", true, false, MakeWithCosts<FullOffloadStrategy>},
    KnownStrategy{"asymmetric", true, false, MakeWithCosts<AsymmetricStrategy>},
    KnownStrategy{"async", true, true, MakeWithCosts<AsyncStrategy>},
    KnownStrategy{"apex", true, true, MakeWithCosts<ApexStrategy>},
    KnownStrategy{"switching", true, true, MakeWithCosts<SwitchingStrategy>},
};

// Works like the others and is not offered.
constexpr std::string_view kForTests = "switching";

const KnownStrategy* Find(std::string_view name) {
  for (const KnownStrategy& strategy : kStrategies) {
    if (strategy.name == name) return &strategy;
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Strategy>> CreateStrategy(std::string_view name, const LayerCosts* costs) {
  if (const KnownStrategy* strategy = Find(name)) return strategy->make(costs);
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
  for (const KnownStrategy& strategy : kStrategies) {
    if (strategy.name != kForTests) names.push_back(strategy.name);
  }
  return names;
}

bool StrategyUsesCpuTier(std::string_view name) {
  const KnownStrategy* strategy = Find(name);
  return strategy != nullptr && strategy->uses_cpu_tier;
}

bool StrategyRides(std::string_view name) {
  const KnownStrategy* strategy = Find(name);
  return strategy != nullptr && strategy->rides;
}

}  // namespace tandem
