#include "perf/cost_table.h"

#include <cmath>
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
  if (measurements.has_cpu_tier()) {
    TANDEM_RETURN_IF_ERROR(CheckLines(measurements.cpu_attention, "cpu attention"));
    TANDEM_RETURN_IF_ERROR(CheckPoints(measurements.exchange, "the exchange", 1));
    TANDEM_RETURN_IF_ERROR(CheckPoints(measurements.swap, "swaps", 1));
  }
  return CostTable(std::move(measurements));
}

CostTable::CostTable(CostMeasurements measurements)
    : measurements_(std::move(measurements)),
      linear_(measurements_.linear),
      gpu_decode_attention_(measurements_.gpu_decode_attention),
      prefill_attention_(measurements_.prefill_attention),
      outside_layers_(measurements_.outside_layers),
      cpu_attention_(measurements_.cpu_attention),
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
