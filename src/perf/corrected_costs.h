// Measured costs, corrected by what iterations really take.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "perf/iteration_load.h"
#include "perf/layer_costs.h"

namespace tandem {

// How an iteration is launched, which decides what stands between its ops.
enum class IterationMode {
  kGraph,            // replayed: decodes of the gpu tier only
  kOpByOp,           // no rows of the cpu tier
  kHybrid,           // op by op, with rows of the cpu tier that are waited for
  kGraphWithRiders,  // replayed: decodes of the gpu tier, and cohorts that ride
  kOpByOpWithRiders,
};
inline constexpr size_t kNumIterationModes = 5;

// Each mode has a factor on all that the GPU does (linear operations, attention, what is outside the layers),
// and CPU attention has one. They follow the measured times slowly, in logarithmic steps; a single iteration
// far off (a first one, a stall) hardly moves them, several in a row do.
//
// That of hybrid iterations is at most a tenth above that of iterations op by op, since the GPU does the same
// in both. What they take beyond is a constant a layer (HandOverUs). As a factor it would fulfil itself: as
// many rows go to the CPU as hide behind what the GPU is believed to take, and with more of them the
// iteration does take as long.
//
// As LayerCosts, these are the costs of a hybrid iteration: its halves are to be balanced by them. What
// iterations of a kind take times what TimeModel makes of these costs is IterationFactor: the mean of the
// kind's modes, as they come on this work. By it strategies are compared.
//
// Nothing is observed of a kind while the strategy has no use for it. A kind that has been observed for long
// enough changes with the machine, whose clocks fall as it gets warm: the others are taken to change as much.
// Otherwise what is in use would look worse by the warmth alone, and be changed for what was last seen on a
// cold machine, to and fro.
//
// So that no strategy stays where it is by a wrong belief, what was learned of iterations with cpu rows is
// kept for some time without any, then it fades, and they look like those without. It is kept sqrt(n + 1)
// times as long once they have come back n times and were as before: so among T iterations there are
// O(T^(2/3)) such returns (docs/strategies.md has what follows).
//
// Engine thread only.
class CorrectedCosts : public LayerCosts {
 public:
  // table: outlives the costs.
  explicit CorrectedCosts(const LayerCosts* table) : table_(table) { gpu_factors_.fill(1.0); }

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
  double HandOverUs() const override { return hand_over_us_; }
  double IterationFactor(IterationKind kind) const override;

  // Factors on the table.
  double gpu_factor(IterationMode mode) const { return gpu_factors_[static_cast<size_t>(mode)]; }
  double cpu_factor() const { return cpu_factor_; }
  double kind_factor(IterationKind kind) const { return kinds_[static_cast<size_t>(kind)].factor; }

  static IterationMode ModeOf(const IterationLoad& load, bool as_graph);
  static IterationKind KindOf(IterationMode mode);
  // Time of an iteration, copies between the tiers included. load: of LoadOf with these costs.
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
  // What is known of the iterations of a kind, and how they come and go.
  struct Kind {
    double factor = 1;  // times what the table says of them: a mean over many more than of a mode
    int64_t num_observations = 0;
    int64_t num_here = 0;       // iterations since they came back
    int64_t num_away = 0;       // of other kinds, since the last
    int64_t num_as_before = 0;  // times that they came back and were as they had been, in a row
    double left_at = 0;         // factor when they were last; 0: they were never

    bool is_forgotten() const;
    void Observe(double took);
  };

  void LearnMode(IterationMode mode, double step);
  // over_us: what a layer of a hybrid iteration took beyond what was predicted.
  void LearnHandOver(double over_us);
  bool LearnsHandOver() const;
  // What an iteration of this mode says of kinds, which took `ratio` times what was predicted.
  void LearnKinds(IterationMode mode, double ratio);
  // Moves the factor of a mode of which an iteration says nothing.
  void Fade(IterationMode mode, double towards);
  Kind& kind_of(IterationKind kind) { return kinds_[static_cast<size_t>(kind)]; }
  double hybrid_factor() const { return gpu_factor(IterationMode::kHybrid); }
  // Step in the logarithm of a factor for a measured time that is `ratio` times the predicted one.
  static double StepFor(double ratio, Trust* trust);

  const LayerCosts* table_;
  std::array<double, kNumIterationModes> gpu_factors_{};
  std::array<Trust, kNumIterationModes> gpu_trust_{};
  std::array<Kind, kNumIterationKinds> kinds_{};
  double cpu_factor_ = 1.0;
  Trust cpu_trust_;
  double hand_over_us_ = 0;
  int64_t num_hand_overs_ = 0;  // observed
  PredictionTotals prediction_;
};

}  // namespace tandem
