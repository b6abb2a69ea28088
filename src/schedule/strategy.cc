#include "schedule/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/param_error.h"
#include "schedule/apex.h"
#include "schedule/asymmetric.h"
#include "schedule/async.h"
#include "schedule/auto.h"
#include "schedule/full_offload.h"
#include "schedule/gpu_only.h"
#include "schedule/neo_planner.h"
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
  std::optional<CpuUse> cpu_use;  // what its requests in the cpu tier are admitted for; none: no cpu tier
  bool rides;
  std::unique_ptr<Strategy> (*make)(const LayerCosts* costs);
};

constexpr std::array kStrategies = {
    KnownStrategy{"auto", CpuUse::kBest, true, MakeWithCosts<AutoStrategy>},
    KnownStrategy{"gpu-only", std::nullopt, false, MakeGpuOnly},
    KnownStrategy{"simple-offload", CpuUse::kUnified, false, MakeWithCosts<SimpleOffloadStrategy>},
    KnownStrategy{"symmetric", CpuUse::kHalves, false, MakeWithCosts<SymmetricStrategy>},
    KnownStrategy{"full-offload", CpuUse::kAll, false, MakeWithCosts<FullOffloadStrategy>},
    KnownStrategy{"asymmetric", CpuUse::kHidden, false, MakeWithCosts<AsymmetricStrategy>},
    KnownStrategy{"async", CpuUse::kRiding, true, MakeWithCosts<AsyncStrategy>},
    KnownStrategy{"apex", CpuUse::kRiding, true, MakeWithCosts<ApexStrategy>},
    KnownStrategy{"switching", CpuUse::kRiding, true, MakeWithCosts<SwitchingStrategy>},
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
  return strategy != nullptr && strategy->cpu_use;
}

bool StrategyRides(std::string_view name) {
  const KnownStrategy* strategy = Find(name);
  return strategy != nullptr && strategy->rides;
}

int64_t SteadyCpuRows(std::string_view name, SteadyWork work, const LayerCosts& costs) {
  const KnownStrategy* strategy = Find(name);
  if (strategy == nullptr || !strategy->cpu_use) return 0;
  const CpuUse use = *strategy->cpu_use;
  if (OffloadsAll(use)) work.gpu_rows = 0;
  const OperatingPoint hidden = FindOperatingPoint(work, Overlap::kAsymmetric, costs);
  if (use != CpuUse::kRiding && use != CpuUse::kBest) return hidden.cpu_rows;
  const OperatingPoint riding = FindOperatingPoint(work, Overlap::kAsynchronous, costs);
  if (use == CpuUse::kBest && riding.rate < kWorthFilling * hidden.rate) return hidden.cpu_rows;
  const double admitted = std::ceil(kRidingSpare * static_cast<double>(riding.cpu_rows));
  return static_cast<int64_t>(std::min(admitted, work.max_cpu_rows));
}

}  // namespace tandem
