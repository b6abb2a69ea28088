#include "trial/product_trial.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <vector>

#include "trial/rounds.h"
#include "trial/trial_memory.h"

namespace tandem {
namespace {

// The first is the default.
constexpr std::array<ProductFetch, 10> kProductFetches = {{
    {.level = FetchLevel::kL2, .distance_bytes = 4096},
    {.level = FetchLevel::kL1, .distance_bytes = 4096},
    {.level = FetchLevel::kNonTemporal, .distance_bytes = 4096},
    {.level = FetchLevel::kL2, .distance_bytes = 2048},
    {.level = FetchLevel::kL1, .distance_bytes = 2048},
    {.level = FetchLevel::kNonTemporal, .distance_bytes = 2048},
    {.level = FetchLevel::kL2, .distance_bytes = 1024},
    {.level = FetchLevel::kL1, .distance_bytes = 1024},
    {.level = FetchLevel::kL2, .distance_bytes = 8192},
    {.level = FetchLevel::kL1, .distance_bytes = 8192},
}};

// A panel is about what a thread of the pool takes at a time: what is fetched beyond its end is in vain.
constexpr int64_t kInFeatures = 1024;

}  // namespace

Result<ProductChoice> TryProducts(const ProductUse& use, CpuAttention* workers, Device* device) {
  const auto element_bytes = static_cast<int64_t>(DTypeSize(use.dtype));
  const int64_t num_panels = kTrialRunBytes / (kInFeatures * kPanelColumns * element_bytes);
  const int64_t out_features = num_panels * kPanelColumns;
  TANDEM_ASSIGN_OR_RETURN(TrialMemory memory,
                          TrialMemory::Create(kTrialRunBytes, use.dtype, workers, device));
  const LinearKernels& kernels = LinearKernelsFor(BestCpuIsa());
  auto* kernel = use.dtype == DType::kF32 ? kernels.f32 : kernels.bf16_to_f32;
  const std::vector<float> x(kInFeatures, 0.5F);  // as bf16 it is finite as well
  std::vector<std::vector<float>> y(static_cast<size_t>(workers->num_threads()),
                                    std::vector<float>(static_cast<size_t>(out_features)));
  std::vector<int64_t> panels(static_cast<size_t>(num_panels));
  std::iota(panels.begin(), panels.end(), 0);
  std::shuffle(panels.begin(), panels.end(), std::minstd_rand(7));
  const auto run = [&](const std::vector<size_t>& candidates) {
    return memory.RunRound(candidates.size(), [&](size_t i, int thread, const std::byte* weights) {
      LinearTile tile;
      tile.x = x.data();
      tile.x_stride = kInFeatures;
      tile.num_rows = 1;
      tile.panels = weights;
      tile.panel_stride = kInFeatures * kPanelColumns;
      tile.in_features = kInFeatures;
      tile.y = y[static_cast<size_t>(thread)].data();
      tile.y_stride = out_features;
      tile.out_features = out_features;
      tile.fetch = kProductFetches.at(candidates[i]);
      for (const int64_t panel : panels) {
        tile.first_unit = panel * kUnitsPerPanel;
        tile.end_unit = tile.first_unit + kUnitsPerPanel;
        kernel(tile);
      }
    });
  };
  const TrialOutcome outcome = RunTrial(kProductFetches.size(), run, {});
  return ProductChoice{.fetch = kProductFetches.at(outcome.chosen), .speedup = outcome.speedup};
}

}  // namespace tandem
