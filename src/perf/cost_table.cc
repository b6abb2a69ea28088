#include "perf/cost_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

// Of a row or token in a cpu tier that was not measured: no plan wants it.
constexpr double kUnknownUs = 1e8;

Status CheckPoints(const std::vector<CostPoint>& points, std::string_view name, int64_t min_count) {
  if (points.empty()) return MakeError(ErrorCode::kInvalidArgument, "costs of {}: there are no points", name);
  int64_t next_count = min_count;
  for (const CostPoint& point : points) {
    if (point.count < next_count) {
      return MakeError(ErrorCode::kInvalidArgument, "costs of {}: the counts do not ascend at {}", name,
                       point.count);
    }
    if (!std::isfinite(point.us) || point.us < 0) {
      return MakeError(ErrorCode::kInvalidArgument, "costs of {}: {} us at {} are impossible", name, point.us,
                       point.count);
    }
    next_count = point.count + 1;
  }
  return {};
}

Status CheckLines(const std::vector<CostLine>& lines, std::string_view name) {
  if (lines.empty()) return MakeError(ErrorCode::kInvalidArgument, "costs of {}: there are no points", name);
  int64_t next_rows = 1;
  for (const CostLine& line : lines) {
    if (line.rows < next_rows) {
      return MakeError(ErrorCode::kInvalidArgument, "costs of {}: the rows do not ascend at {}", name,
                       line.rows);
    }
    TANDEM_RETURN_IF_ERROR(CheckPoints(line.points, name, 1));
    next_rows = line.rows + 1;
  }
  return {};
}

Status CheckTiles(const RowTiles& tiles) {
  int64_t last_rows = 0;
  for (const RowTiles::Step& step : tiles.steps) {
    if (step.up_to_rows <= last_rows)
      return MakeError(ErrorCode::kInvalidArgument, "row tiles do not ascend at {} rows", step.up_to_rows);
    if (step.tile_rows < 1)
      return MakeError(ErrorCode::kInvalidArgument, "row tiles of {} rows are impossible", step.tile_rows);
    last_rows = step.up_to_rows;
  }
  if (tiles.last_tile_rows >= 1) return {};
  return MakeError(ErrorCode::kInvalidArgument, "row tiles of {} rows are impossible", tiles.last_tile_rows);
}

// LayerCosts::SharedReadCost of each number of rows, from what the same rows take in groups of so many.
// Beyond the last number that was measured nothing is gained.
std::array<double, kRowsPerGroup + 1> SharedReadCosts(const std::vector<CostPoint>& points) {
  std::array<double, kRowsPerGroup + 1> costs = {};
  const auto of_group = [&](const CostPoint& point) {
    return static_cast<double>(point.count) * point.us / points.front().us;
  };
  auto above = points.begin();
  for (int64_t rows = 1; rows <= kRowsPerGroup; ++rows) {
    const double before = costs[static_cast<size_t>(rows) - 1];
    while (above != points.end() && above->count < rows) ++above;
    double cost = before + 1;
    if (above != points.end()) {
      cost = of_group(*above);
      if (above->count > rows) {
        const CostPoint& below = *(above - 1);
        const double share =
            static_cast<double>(rows - below.count) / static_cast<double>(above->count - below.count);
        cost = std::lerp(of_group(below), cost, share);
      }
    }
    costs[static_cast<size_t>(rows)] = std::clamp(cost, std::max(1.0, before), static_cast<double>(rows));
  }
  return costs;
}

// A layer of a shard: its products, and the sums behind the output and the down projection.
std::vector<CostPoint> WithSums(const std::vector<CostPoint>& linear,
                                const std::vector<CostPoint>& all_reduce) {
  if (all_reduce.empty()) return linear;
  constexpr double kSumsPerLayer = 2;
  std::set<int64_t> counts;
  for (const auto* points : {&linear, &all_reduce}) {
    for (const CostPoint& point : *points) counts.insert(point.count);
  }
  const CostCurve products(linear);
  const CostCurve sums(all_reduce);
  std::vector<CostPoint> both;
  both.reserve(counts.size());
  for (const int64_t count : counts)
    both.push_back({count, products.Us(count) + kSumsPerLayer * sums.Us(count)});
  return both;
}

Status CheckSharedReads(const std::vector<CostPoint>& points) {
  if (points.empty()) return {};
  TANDEM_RETURN_IF_ERROR(CheckPoints(points, "shared reads", 1));
  if (points.front().count == 1 && points.front().us > 0) return {};
  return MakeError(ErrorCode::kInvalidArgument, "costs of shared reads: none of rows that read their own");
}

}  // namespace

Result<CostTable> CostTable::Create(CostMeasurements measurements) {
  if (measurements.num_layers < 1) {
    return MakeError(ErrorCode::kInvalidArgument, "costs of a model with {} layers", measurements.num_layers);
  }
  TANDEM_RETURN_IF_ERROR(CheckPoints(measurements.linear, "linear operations", 1));
  TANDEM_RETURN_IF_ERROR(CheckTiles(measurements.row_tiles));
  TANDEM_RETURN_IF_ERROR(CheckLines(measurements.gpu_decode_attention, "gpu decode attention"));
  TANDEM_RETURN_IF_ERROR(CheckLines(measurements.prefill_attention, "prefill attention"));
  TANDEM_RETURN_IF_ERROR(CheckPoints(measurements.outside_layers, "what is outside the layers", 0));
  if (!measurements.all_reduce.empty())
    TANDEM_RETURN_IF_ERROR(CheckPoints(measurements.all_reduce, "sums over the shards", 1));
  if (measurements.has_cpu_tier()) {
    TANDEM_RETURN_IF_ERROR(CheckLines(measurements.cpu_attention, "cpu attention"));
    TANDEM_RETURN_IF_ERROR(CheckSharedReads(measurements.shared_reads));
    TANDEM_RETURN_IF_ERROR(CheckPoints(measurements.exchange, "the exchange", 1));
    TANDEM_RETURN_IF_ERROR(CheckPoints(measurements.swap, "swaps", 1));
  }
  return CostTable(std::move(measurements));
}

CostTable::CostTable(CostMeasurements measurements)
    : measurements_(std::move(measurements)),
      linear_(WithSums(measurements_.linear, measurements_.all_reduce)),
      gpu_decode_attention_(measurements_.gpu_decode_attention),
      prefill_attention_(measurements_.prefill_attention),
      outside_layers_(measurements_.outside_layers),
      cpu_attention_(measurements_.cpu_attention),
      shared_read_cost_(SharedReadCosts(measurements_.shared_reads)),
      exchange_(measurements_.exchange),
      swap_(measurements_.swap) {}

double CostTable::LinearUs(int64_t num_tokens) const {
  return num_tokens <= 0 ? 0 : linear_.Us(num_tokens);
}

double CostTable::GpuDecodeAttentionUs(int64_t num_rows, int64_t kv_tokens) const {
  return num_rows <= 0 ? 0 : gpu_decode_attention_.Us(num_rows, kv_tokens);
}

double CostTable::PrefillAttentionUs(int64_t num_tokens, int64_t context_len) const {
  return num_tokens <= 0 ? 0 : prefill_attention_.Us(num_tokens, context_len);
}

double CostTable::CpuAttentionUs(int64_t num_rows, int64_t kv_tokens) const {
  if (num_rows <= 0) return 0;
  return cpu_attention_.empty() ? kUnknownUs * static_cast<double>(num_rows)
                                : cpu_attention_.Us(num_rows, kv_tokens);
}

double CostTable::ExchangeUs(int64_t num_rows) const {
  if (num_rows <= 0) return 0;
  return exchange_.empty() ? kUnknownUs * static_cast<double>(num_rows) : exchange_.Us(num_rows);
}

double CostTable::SwapUs(int64_t num_tokens) const {
  if (num_tokens <= 0) return 0;
  return swap_.empty() ? kUnknownUs * static_cast<double>(num_tokens) : swap_.Us(num_tokens);
}

double CostTable::OutsideLayersUs(int64_t num_sampled) const {
  return outside_layers_.Us(num_sampled);
}

}  // namespace tandem
