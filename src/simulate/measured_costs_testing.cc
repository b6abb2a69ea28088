#include "simulate/measured_costs_testing.h"

#include "perf/profile_file.h"

namespace tandem::testing {

Result<CostTable> MeasuredCosts() {
  const ProfileKey key{.num_layers = 32,
                       .hidden_size = 4096,
                       .intermediate_size = 14336,
                       .num_heads = 32,
                       .num_kv_heads = 8,
                       .head_dim = 128,
                       .vocab_size = 128256,
                       .dtype = "bf16",
                       .weights = "bf16",
                       .gpu_kv = "bf16",
                       .cpu_kv = "bf16",
                       .device = "cuda: NVIDIA H200, a slice of 16 of 132 SMs",
                       .gpu_sm_limit = 16,
                       .cpu_threads = 14,
                       .cpu_isa = "14 threads, AMX, fetches to L2, half a piece ahead"};
  return ReadProfile(TANDEM_SOURCE_DIR "/tests/fixtures/profiles/llama-3.1-8b_h200_16sm.json", key,
                     {.max_rows = 2048,
                      .max_context = kMeasuredMaxContext,
                      .gpu_kv_tokens = kMeasuredGpuTokens,
                      .cpu_kv_tokens = kMeasuredCpuTokens});
}

}  // namespace tandem::testing
