// Costs by formula, for tests: memory-bound below a ridge, arithmetic-bound above, everything else linear.
#pragma once

#include <algorithm>
#include <cstdint>

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
  double exchange_us = 0;      // of any exchange
  double exchange_row_us = 0;
  double swap_ns = 0;  // a token
  double outside_us = 0;

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
  double ExchangeUs(int64_t num_rows) const override {
    return num_rows == 0 ? 0 : exchange_us + exchange_row_us * static_cast<double>(num_rows);
  }
  double SwapUs(int64_t num_tokens) const override {
    return swap_ns * 1e-3 * static_cast<double>(num_tokens);
  }
  double OutsideLayersUs(int64_t /*num_sampled*/) const override { return outside_us; }
};

}  // namespace tandem
