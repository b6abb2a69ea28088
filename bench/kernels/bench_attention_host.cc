// Attention of the host backend: decodes (bound by reading the cache) and prefill chunks (bound by
// arithmetic).
#include <algorithm>
#include <chrono>
#include <numeric>

#include "host_bench.h"

namespace tandem {
namespace {

struct HeadShape {
  int64_t num_heads = 9;
  int64_t num_kv_heads = 3;
  int64_t head_dim = 64;
};

void RunAttention(benchmark::State& state, const HeadShape& heads, DType dtype, int64_t num_sequences,
                  int64_t rows_each, int64_t context_len) {
  HostBench bench;
  KvLayerView kv;
  kv.shape = {KvFormat::Plain(dtype), 32, heads.num_kv_heads, heads.head_dim};
  const int64_t blocks_each = (context_len + 31) / 32;
  kv.num_blocks = blocks_each * num_sequences;
  std::vector<std::byte> cache =
      RandomElements(dtype, kv.num_blocks * static_cast<int64_t>(kv.shape.BlockBytes() / DTypeSize(dtype)));
  kv.data = cache.data();
  const int64_t rows = num_sequences * rows_each;
  const int64_t width = heads.num_heads * heads.head_dim;
  std::vector<std::byte> q = RandomElements(dtype, rows * width);
  std::vector<std::byte> out(q.size());
  AttentionBatch batch;
  batch.num_rows = rows;
  for (int64_t s = 0; s < num_sequences; ++s) {
    AttentionSequence sequence{s * rows_each, rows_each, context_len, {}};
    sequence.block_table.resize(static_cast<size_t>(blocks_each));
    std::iota(sequence.block_table.begin(), sequence.block_table.end(),
              static_cast<int32_t>(s * blocks_each));
    batch.sequences.push_back(std::move(sequence));
  }
  const auto plan = bench.ops().CreateAttentionPlan({}).value();
  bench.ops().PlanAttention(bench.stream(), batch, plan.get());
  AttentionArgs args;
  args.q = MatrixView::Dense(q.data(), dtype, rows, width);
  args.out = MatrixView::Dense(out.data(), dtype, rows, width);
  args.kv = kv;
  args.num_heads = heads.num_heads;
  args.scale = 0.125F;
  args.plan = plan.get();
  double best_s = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    bench.ops().PagedAttention(bench.stream(), args);
    bench.stream().Synchronize();
    best_s =
        std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  // Keys that rows see, causally.
  const double pairs = static_cast<double>(rows) *
                       (static_cast<double>(context_len) - (static_cast<double>(rows_each) - 1) / 2);
  state.counters["best_us"] = best_s * 1e6;
  state.counters["GB/s"] = static_cast<double>(cache.size()) / best_s / 1e9;
  state.counters["GFLOP/s"] = 4.0 * pairs * static_cast<double>(width) / best_s / 1e9;
}

void BM_Decode(benchmark::State& state, DType dtype, HeadShape heads) {
  RunAttention(state, heads, dtype, state.range(0), 1, state.range(1));
}
void BM_Prefill(benchmark::State& state, DType dtype, HeadShape heads) {
  RunAttention(state, heads, dtype, 1, state.range(0), state.range(1));
}

constexpr HeadShape kSmolLm = {9, 3, 64};
constexpr HeadShape kLlama8B = {32, 8, 128};

BENCHMARK_CAPTURE(BM_Decode, smol_bf16, DType::kBF16, kSmolLm)
    ->Args({1, 100})
    ->Args({1, 1000})
    ->Args({16, 300})
    ->Args({64, 2000})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Decode, smol_fp32, DType::kF32, kSmolLm)
    ->Args({1, 100})
    ->Args({1, 1000})
    ->Args({16, 300})
    ->Args({64, 2000})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Decode, llama8b_bf16, DType::kBF16, kLlama8B)
    ->Args({1, 4000})
    ->Args({32, 2000})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Prefill, smol_bf16, DType::kBF16, kSmolLm)
    ->Args({512, 512})
    ->Args({512, 2048})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Prefill, smol_fp32, DType::kF32, kSmolLm)
    ->Args({512, 512})
    ->Args({512, 2048})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Prefill, llama8b_bf16, DType::kBF16, kLlama8B)->Args({512, 2048})->UseRealTime();

}  // namespace
}  // namespace tandem
