// Costs by formula, for tests: memory-bound below a ridge, arithmetic-bound above, everything else linear.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/row_tiles.h"
#include "perf/layer_costs.h"

namespace tandem {

struct AnalyticCosts : LayerCosts {
  int64_t layers = 1;
  double linear_us = 0;        // weights read once
  double linear_token_us = 0;  // a token, where arithmetic is the limit
  double gpu_kv_ns = 0;        // a token of context
  double prefill_ns = 0;       // a pair of query and key token
  double cpu_us = 0;           // of any CPU attention
  double cpu_kv_ns = 0;        // a token of context
  double further_reader = 1;   // of a read: what it takes more for each row but the first
  double exchange_us = 0;      // of any exchange
  double exchange_row_us = 0;
  double swap_ns = 0;  // a token
  double outside_us = 0;
  // As a GPU's.
  RowTiles tiles = {.steps = {{64, 1}, {256, 16}, {384, 64}}, .last_tile_rows = 128};

  int64_t num_layers() const override { return layers; }
  double LinearUs(int64_t num_tokens) const override {
    return num_tokens == 0 ? 0 : std::max(linear_us, linear_token_us * static_cast<double>(num_tokens));
  }
  double GpuDecodeAttentionUs(int64_t /*num_rows*/, int64_t kv_tokens) const override {
    return gpu_kv_ns * 1e-3 * static_cast<double>(kv_tokens);
  }
  double PrefillAttentionUs(int64_t num_tokens, int64_t context_len) const override {
    const auto tokens = static_cast<double>(num_tokens);
    return prefill_ns * 1e-3 * tokens * (static_cast<double>(context_len) - tokens / 2);
  }
  double CpuAttentionUs(int64_t num_rows, int64_t kv_tokens) const override {
    return num_rows == 0 ? 0 : cpu_us + cpu_kv_ns * 1e-3 * static_cast<double>(kv_tokens);
  }
  double SharedReadCost(int64_t num_rows) const override {
    return 1 + further_reader * static_cast<double>(num_rows - 1);
  }
  double ExchangeUs(int64_t num_rows) const override {
    return num_rows == 0 ? 0 : exchange_us + exchange_row_us * static_cast<double>(num_rows);
  }
  double SwapUs(int64_t num_tokens) const override {
    return swap_ns * 1e-3 * static_cast<double>(num_tokens);
  }
  double OutsideLayersUs(int64_t /*num_sampled*/) const override { return outside_us; }
  const RowTiles& row_tiles() const override { return tiles; }
};

// Llama-3.1-8B in the class of an A10G. cpu_us: of any CPU attention, which reads so many GB/s beyond that.
inline AnalyticCosts SmallSliceCosts(double cpu_us, double cpu_gb_per_s) {
  AnalyticCosts costs;
  costs.layers = 32;
  costs.linear_us = 198;
  costs.linear_token_us = 3.96;
  costs.gpu_kv_ns = 4096 / 900.0;
  costs.prefill_ns = 16384 / 55e3;
  costs.cpu_us = cpu_us;
  costs.cpu_kv_ns = 4096 / cpu_gb_per_s;
  costs.exchange_us = 10;
  costs.exchange_row_us = 0.4;
  costs.swap_ns = 4096 / 50.0;
  costs.outside_us = 400;
  return costs;
}

// Llama-2-7B in the class of a T4: half of the arithmetic.
inline AnalyticCosts TinySliceCosts(double cpu_us, double cpu_gb_per_s) {
  AnalyticCosts costs = SmallSliceCosts(cpu_us, cpu_gb_per_s);
  costs.linear_us = 350;
  costs.linear_token_us = 7.4;
  costs.gpu_kv_ns = 16384 / 600.0;
  costs.prefill_ns = 16384 / 27e3;
  costs.cpu_kv_ns = 16384 / cpu_gb_per_s;
  costs.swap_ns = 16384 / 50.0;
  return costs;
}

}  // namespace tandem
