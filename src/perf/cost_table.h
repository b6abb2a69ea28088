// Costs as they were measured on a machine for a model: plain data, and what lies between the points.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/kv_layout.h"
#include "base/result.h"
#include "base/row_tiles.h"
#include "perf/cost_curve.h"
#include "perf/cost_surface.h"
#include "perf/layer_costs.h"

namespace tandem {

// Microseconds of one layer, except outside_layers. Names and arguments as in LayerCosts.
struct CostMeasurements {
  int64_t num_layers = 0;
  std::vector<CostPoint> linear;               // tokens; of a shard without the sums
  RowTiles row_tiles;                          // of the linear operations, as their backend says
  std::vector<CostLine> gpu_decode_attention;  // rows, kv tokens of all rows together
  std::vector<CostLine> prefill_attention;     // tokens of the chunk, context length
  std::vector<CostPoint> outside_layers;       // sampled rows, 0 among them
  // Of a shard: a sum over all of them, rows. A layer has two. Empty for a whole model.
  std::vector<CostPoint> all_reduce;
  // Empty without a cpu tier.
  std::vector<CostLine> cpu_attention;  // rows, kv tokens of all rows together
  std::vector<CostPoint> shared_reads;  // rows that read at once; of the same rows, in groups of so many
  std::vector<CostPoint> exchange;      // rows
  std::vector<CostPoint> swap;          // tokens
  bool has_cpu_tier() const { return !cpu_attention.empty(); }
  bool operator==(const CostMeasurements&) const = default;
};

// Immutable; any thread. Nothing costs nothing, except that an iteration which samples no row still has
// OutsideLayersUs(0): its start and its embedding. Without measurements of the cpu tier its use costs
// minutes.
class CostTable : public LayerCosts {
 public:
  // Errors: kInvalidArgument, naming the table: no points, counts that do not ascend, a cost that is negative
  // or not finite, tiles of no rows.
  static Result<CostTable> Create(CostMeasurements measurements);

  // As they were given.
  const CostMeasurements& measurements() const { return measurements_; }

  int64_t num_layers() const override { return measurements_.num_layers; }
  double LinearUs(int64_t num_tokens) const override;
  double GpuDecodeAttentionUs(int64_t num_rows, int64_t kv_tokens) const override;
  double PrefillAttentionUs(int64_t num_tokens, int64_t context_len) const override;
  double CpuAttentionUs(int64_t num_rows, int64_t kv_tokens) const override;
  double SharedReadCost(int64_t num_rows) const override {
    return shared_read_cost_[static_cast<size_t>(num_rows)];
  }
  double ExchangeUs(int64_t num_rows) const override;
  double SwapUs(int64_t num_tokens) const override;
  double OutsideLayersUs(int64_t num_sampled) const override;
  const RowTiles& row_tiles() const override { return measurements_.row_tiles; }

 private:
  explicit CostTable(CostMeasurements measurements);

  CostMeasurements measurements_;
  CostCurve linear_;  // with the sums
  CostSurface gpu_decode_attention_;
  CostSurface prefill_attention_;
  CostCurve outside_layers_;
  CostSurface cpu_attention_;
  std::array<double, kRowsPerGroup + 1> shared_read_cost_ = {};  // by rows
  CostCurve exchange_;
  CostCurve swap_;
};

}  // namespace tandem
