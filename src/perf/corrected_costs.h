// Measured costs, corrected by what iterations really take.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "perf/cost_table.h"
#include "perf/iteration_load.h"
#include "perf/layer_costs.h"

namespace tandem {

// How an iteration is launched, which decides what stands between its ops.
enum class IterationMode {
  kGraph,            // replayed: decodes of the gpu tier only
  kOpByOp,           // no rows of the cpu tier
  kHybrid,           // op by op, with rows of the cpu tier
  kGraphWithRiders,  // replayed: decodes of the gpu tier, and cohorts that ride
};
inline constexpr size_t kNumIterationModes = 4;

// Each mode has a factor on all that the GPU does (linear operations, attention, what is outside the layers),
// and CPU attention has one. They follow the measured times slowly, in logarithmic steps; a single iteration
// far off (a first one, a stall) hardly moves them, several in a row do.
//
// As LayerCosts, these are the costs of a hybrid iteration: its halves are to be balanced by them. The
// predicted time of another kind of iteration is that of TimeModel of these costs times GraphFactor(),
// OpByOpFactor() or GraphWithRidersFactor().
//
// Engine thread only.
class CorrectedCosts : public LayerCosts {
 public:
  // table: outlives the costs.
  explicit CorrectedCosts(const CostTable* table) : table_(table) { gpu_factors_.fill(1.0); }

  int64_t num_layers() const override { return table_->num_layers(); }
  double LinearUs(int64_t num_tokens) const override {
    return hybrid_factor() * table_->LinearUs(num_tokens);
  }
  double GpuDecodeAttentionUs(int64_t num_rows, int64_t kv_tokens) const override {
    return hybrid_factor() * table_->GpuDecodeAttentionUs(num_rows, kv_tokens);
  }
  double PrefillAttentionUs(int64_t num_tokens, int64_t context_len) const override {
    return hybrid_factor() * table_->PrefillAttentionUs(num_tokens, context_len);
  }
  double CpuAttentionUs(int64_t num_rows, int64_t kv_tokens) const override {
    return cpu_factor_ * table_->CpuAttentionUs(num_rows, kv_tokens);
  }
  double SharedReadCost(int64_t num_rows) const override { return table_->SharedReadCost(num_rows); }
  double ExchangeUs(int64_t num_rows) const override { return table_->ExchangeUs(num_rows); }
  double SwapUs(int64_t num_tokens) const override { return table_->SwapUs(num_tokens); }
  double OutsideLayersUs(int64_t num_sampled) const override {
    return hybrid_factor() * table_->OutsideLayersUs(num_sampled);
  }
  const RowTiles& row_tiles() const override { return table_->row_tiles(); }

  // Time of an iteration as a graph, op by op without cpu rows, and as a graph with riders, over the time of
  // IterationUs.
  double GraphFactor() const { return gpu_factor(IterationMode::kGraph) / hybrid_factor(); }
  double OpByOpFactor() const { return gpu_factor(IterationMode::kOpByOp) / hybrid_factor(); }
  double GraphWithRidersFactor() const {
    return gpu_factor(IterationMode::kGraphWithRiders) / hybrid_factor();
  }

  // Factors on the table.
  double gpu_factor(IterationMode mode) const { return gpu_factors_[static_cast<size_t>(mode)]; }
  double cpu_factor() const { return cpu_factor_; }

  static IterationMode ModeOf(const IterationLoad& load, bool as_graph);
  // Time of an iteration. load: of LoadOf with these costs.
  double PredictUs(const IterationLoad& load, IterationMode mode) const;

  // What an iteration took. load: of LoadOf with these costs; rider_cpu_us and rider_exchange_us only of
  // cohorts that did join. cpu_attention_us: from begin to end of its
  // tasks of CPU attention, summed over layers and sub-batches; 0: unknown or none. Times that are not above
  // 0 or not finite are ignored.
  void Observe(const IterationLoad& load, bool as_graph, double iteration_us, double cpu_attention_us);

  // Sums over the iterations observed.
  struct PredictionTotals {
    int64_t num_iterations = 0;
    double predicted_us = 0;
    double error_us = 0;  // |measured - predicted|
  };
  const PredictionTotals& prediction() const { return prediction_; }

 private:
  // What a factor remembers of its observations.
  struct Trust {
    int64_t num_observations = 0;
    int64_t num_outliers = 0;  // in a row, all too slow (> 0) or all too fast (< 0)
  };

  // Moves the factor of a mode of which an iteration says nothing.
  void Fade(IterationMode mode, double towards);
  double hybrid_factor() const { return gpu_factor(IterationMode::kHybrid); }
  // Step in the logarithm of a factor for a measured time that is `ratio` times the predicted one.
  static double StepFor(double ratio, Trust* trust);

  const CostTable* table_;
  std::array<double, kNumIterationModes> gpu_factors_{};
  std::array<Trust, kNumIterationModes> gpu_trust_{};
  double cpu_factor_ = 1.0;
  Trust cpu_trust_;
  PredictionTotals prediction_;
};

}  // namespace tandem
