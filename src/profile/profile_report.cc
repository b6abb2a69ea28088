#include "profile/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

namespace tandem {
namespace {

// Of one layer.
double NumWeights(const ModelConfig& config) {
  return static_cast<double>(config.hidden_size *
                             (2 * config.q_width() + 2 * config.kv_width() + 3 * config.intermediate_size));
}

// Bytes in microseconds as GB/s.
double GbPerS(double bytes, double us) {
  return us > 0 ? bytes / us / 1000 : 0;
}

double BestGbPerS(const std::vector<CostPoint>& points, double bytes_each) {
  double best = 0;
  for (const CostPoint& point : points)
    best = std::max(best, GbPerS(static_cast<double>(point.count) * bytes_each, point.us));
  return best;
}

double BestGbPerS(const std::vector<CostLine>& lines, double bytes_each) {
  double best = 0;
  for (const CostLine& line : lines) best = std::max(best, BestGbPerS(line.points, bytes_each));
  return best;
}

void AppendCurve(std::string_view title, std::string_view unit, const std::vector<CostPoint>& points,
                 std::string* text) {
  if (points.empty()) return;
  fmt::format_to(std::back_inserter(*text), "{}\n{:>12} {:>12}\n", title, unit, "us");
  for (const CostPoint& point : points)
    fmt::format_to(std::back_inserter(*text), "{:>12} {:>12.1f}\n", point.count, point.us);
}

// tokens_of_rows: the counts are tokens of all rows together, to be shown for a row. gb_per_s: of bytes_each.
void AppendLines(std::string_view title, std::string_view rows_unit, std::string_view tokens_unit,
                 const std::vector<CostLine>& lines, bool tokens_of_rows, double bytes_each,
                 std::string* text) {
  if (lines.empty()) return;
  fmt::format_to(std::back_inserter(*text), "{}\n{:>12} {:>12} {:>12}{}\n", title, rows_unit, tokens_unit,
                 "us", bytes_each > 0 ? "         GB/s" : "");
  for (const CostLine& line : lines) {
    for (const CostPoint& point : line.points) {
      fmt::format_to(std::back_inserter(*text), "{:>12} {:>12} {:>12.1f}", line.rows,
                     tokens_of_rows ? point.count / line.rows : point.count, point.us);
      if (bytes_each > 0) {
        fmt::format_to(std::back_inserter(*text), " {:>12.1f}",
                       GbPerS(static_cast<double>(point.count) * bytes_each, point.us));
      }
      *text += '\n';
    }
  }
}

}  // namespace

ProfileFigures FiguresOf(const CostMeasurements& measurements, const ModelConfig& config,
                         double layer_weight_bytes, const KvTokenBytes& kv) {
  ProfileFigures figures;
  for (const CostPoint& point : measurements.linear) {
    if (point.us <= 0) continue;
    const double flop = 2 * NumWeights(config) * static_cast<double>(point.count);
    figures.linear_tflop_per_s = std::max(figures.linear_tflop_per_s, flop / point.us / 1e6);
    if (point.count != 1) continue;
    figures.linear_one_row_us = point.us;
    figures.weights_gb_per_s = GbPerS(layer_weight_bytes, point.us);
  }
  figures.gpu_attention_gb_per_s = BestGbPerS(measurements.gpu_decode_attention, kv.gpu);
  figures.cpu_attention_gb_per_s = BestGbPerS(measurements.cpu_attention, kv.cpu);
  figures.swap_gb_per_s = BestGbPerS(measurements.swap, kv.cpu);
  return figures;
}

std::string DescribeSums(const CostMeasurements& measurements) {
  constexpr int64_t kSomeRows = 256;
  const CostCurve sums(measurements.all_reduce);
  return fmt::format("a sum over them takes {:.0f} us for 1 row, {:.0f} us for {} rows", sums.Us(1),
                     sums.Us(kSomeRows), kSomeRows);
}

std::string FormatProfile(const CostMeasurements& measurements, const ModelConfig& config,
                          double layer_weight_bytes, const KvTokenBytes& kv) {
  std::string text;
  AppendCurve("linear operations, one layer", "tokens", measurements.linear, &text);
  AppendCurve("sum over the shards, two a layer", "rows", measurements.all_reduce, &text);
  AppendLines("gpu decode attention, one layer", "rows", "context", measurements.gpu_decode_attention, true,
              kv.gpu, &text);
  AppendLines("prefill attention, one layer", "chunk", "context", measurements.prefill_attention, false, 0,
              &text);
  AppendLines("cpu attention, one layer", "rows", "context", measurements.cpu_attention, true, kv.cpu, &text);
  AppendCurve("exchange with the cpu tier, one layer", "rows", measurements.exchange, &text);
  AppendCurve("swap between the tiers, one layer", "tokens", measurements.swap, &text);
  AppendCurve("outside the layers", "sampled", measurements.outside_layers, &text);

  const ProfileFigures figures = FiguresOf(measurements, config, layer_weight_bytes, kv);
  const auto out = std::back_inserter(text);
  fmt::format_to(
      out, "linear operations: one row {:.1f} us a layer ({:.0f} GB/s of weights), at most {:.2f} TFLOP/s\n",
      figures.linear_one_row_us, figures.weights_gb_per_s, figures.linear_tflop_per_s);
  fmt::format_to(out, "KV read by decodes: gpu attention {:.1f} GB/s", figures.gpu_attention_gb_per_s);
  if (measurements.has_cpu_tier()) {
    fmt::format_to(out, ", cpu attention {:.1f} GB/s, swaps {:.1f} GB/s", figures.cpu_attention_gb_per_s,
                   figures.swap_gb_per_s);
  }
  text += '\n';
  return text;
}

}  // namespace tandem
