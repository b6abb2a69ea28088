// Matrix products: single shapes, and one pass over all weights of SmolLM2-135M (which do not fit a cache),
// against a plain read of as much memory.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "device/host/compute_pool.h"
#include "host_bench.h"

namespace tandem {
namespace {

struct WeightShape {
  int64_t out_features = 0;
  int64_t in_features = 0;
};

std::unique_ptr<LinearWeight> MakeWeight(Ops& ops, const WeightShape& shape, DType dtype,
                                         const WeightFormat& format) {
  if (format.is_quantized()) {
    auto weight = ops.CreateQuantizedWeight({shape.out_features, shape.in_features, dtype}, format).value();
    weight->FillRandom({1, 0.05F});
    return weight;
  }
  auto weight = ops.CreateLinearWeight(shape.out_features, shape.in_features, dtype).value();
  constexpr int64_t kRows = 64;
  const std::vector<std::byte> rows = RandomElements(dtype, kRows * shape.in_features);
  for (int64_t row = 0; row < shape.out_features; row += kRows) {
    weight->LoadRows(row, std::min(kRows, shape.out_features - row), rows.data());
  }
  return weight;
}

std::vector<WeightShape> SmolLmShapes() {
  std::vector<WeightShape> shapes;
  for (int layer = 0; layer < 30; ++layer) {
    shapes.insert(shapes.end(), {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}});
  }
  shapes.push_back({49152, 576});
  return shapes;
}

// One pass over `shapes` with the given rows.
void RunProducts(benchmark::State& state, const std::vector<WeightShape>& shapes, DType dtype, int64_t rows,
                 OneDnnUse onednn, const WeightFormat& format) {
  HostBench bench(onednn);
  std::vector<std::unique_ptr<LinearWeight>> weights;
  int64_t max_in = 0;
  int64_t max_out = 0;
  double weight_bytes = 0;
  double flops = 0;
  for (const WeightShape& shape : shapes) {
    weights.push_back(MakeWeight(bench.ops(), shape, dtype, format));
    max_in = std::max(max_in, shape.in_features);
    max_out = std::max(max_out, shape.out_features);
    weight_bytes += static_cast<double>(weights.back()->size_bytes());
    flops += 2.0 * static_cast<double>(rows * shape.out_features * shape.in_features);
  }
  std::vector<std::byte> x = RandomElements(dtype, rows * max_in);
  std::vector<float> y(static_cast<size_t>(rows * max_out));
  // The fastest time of each product, as the stream's thread sees it: on a shared machine hardly any whole
  // pass runs undisturbed.
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> ends(weights.size() + 1);
  std::vector<double> best_product_s(weights.size(), 1e9);
  const auto take_time = [&](size_t i) {
    AsHostStream(bench.stream()).Enqueue([&ends, i](ComputePool&) { ends[i] = Clock::now(); });
  };
  for (auto _ : state) {
    take_time(0);
    for (size_t i = 0; i < weights.size(); ++i) {
      const LinearWeight& weight = *weights[i];
      bench.ops().Linear(bench.stream(),
                         {MatrixView::Dense(x.data(), dtype, rows, weight.in_features()), &weight,
                          MatrixView::Dense(y.data(), DType::kF32, rows, weight.out_features())});
      take_time(i + 1);
    }
    bench.stream().Synchronize();
    for (size_t i = 0; i < weights.size(); ++i) {
      best_product_s[i] =
          std::min(best_product_s[i], std::chrono::duration<double>(ends[i + 1] - ends[i]).count());
    }
  }
  const double best_s = std::accumulate(best_product_s.begin(), best_product_s.end(), 0.0);
  state.counters["best_us"] = best_s * 1e6;
  state.counters["GB/s"] = weight_bytes / best_s / 1e9;
  state.counters["GFLOP/s"] = flops / best_s / 1e9;
}

void BM_SmolLm(benchmark::State& state, DType dtype, OneDnnUse onednn, const WeightFormat& format = {}) {
  RunProducts(state, SmolLmShapes(), dtype, state.range(0), onednn, format);
}

void BM_Product(benchmark::State& state, DType dtype, OneDnnUse onednn, const WeightFormat& format = {}) {
  RunProducts(state, {{state.range(1), state.range(2)}}, dtype, state.range(0), onednn, format);
}

// Reads 256 MiB in segments as large as a layer's products; the sum of each segment's fastest time counts.
void BM_Read(benchmark::State& state) {
  ComputePool pool(static_cast<int>(state.range(0)), "read");
  constexpr int64_t kSegmentWords = (2 << 20) / 8;
  constexpr int64_t kNumSegments = 128;
  constexpr int64_t kPieces = 16;
  constexpr int64_t kPieceWords = kSegmentWords / kPieces;
  const std::vector<uint64_t> memory(kNumSegments * kSegmentWords, 1);
  std::vector<double> best_segment_s(kNumSegments, 1e9);
  for (auto _ : state) {
    for (int64_t segment = 0; segment < kNumSegments; ++segment) {
      const auto start = std::chrono::steady_clock::now();
      pool.ParallelFor(kPieces, [&](int64_t piece) {
        const uint64_t* from = memory.data() + segment * kSegmentWords + piece * kPieceWords;
        uint64_t sums[16] = {};
        for (int64_t i = 0; i < kPieceWords; i += 16) {
          __builtin_prefetch(from + i + 512);
          __builtin_prefetch(from + i + 520);
          for (int64_t j = 0; j < 16; ++j) sums[j] += from[i + j];
        }
        benchmark::DoNotOptimize(sums);
      });
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      double& best_s = best_segment_s[static_cast<size_t>(segment)];
      best_s = std::min(best_s, elapsed.count());
    }
  }
  const double total_s = std::accumulate(best_segment_s.begin(), best_segment_s.end(), 0.0);
  state.counters["GB/s"] = static_cast<double>(kNumSegments * kSegmentWords * 8) / total_s / 1e9;
}

BENCHMARK(BM_Read)->Arg(1)->Arg(2)->UseRealTime();

BENCHMARK_CAPTURE(BM_SmolLm, bf16, DType::kBF16, OneDnnUse::kNever)
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->Arg(16)
    ->Arg(32)
    ->Arg(128)
    ->Arg(512)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_SmolLm, bf16_onednn, DType::kBF16, OneDnnUse::kAlways)
    ->Arg(1)
    ->Arg(16)
    ->Arg(128)
    ->Arg(512)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_SmolLm, fp32, DType::kF32, OneDnnUse::kNever)
    ->Arg(1)
    ->Arg(16)
    ->Arg(128)
    ->Arg(512)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_SmolLm, fp32_onednn, DType::kF32, OneDnnUse::kAlways)
    ->Arg(1)
    ->Arg(16)
    ->Arg(128)
    ->Arg(512)
    ->UseRealTime();

BENCHMARK_CAPTURE(BM_SmolLm, int4, DType::kBF16, OneDnnUse::kAuto, Int4Format(32, true))
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 128, 512}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_SmolLm, int8, DType::kBF16, OneDnnUse::kAuto, Int8Format(32, false))
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 128, 512}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_SmolLm, int4_fp32, DType::kF32, OneDnnUse::kAuto, Int4Format(32, true))
    ->ArgsProduct({{1, 16, 128, 512}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, fp8, DType::kBF16, OneDnnUse::kAuto, Fp8Format(128))
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 128, 512}, {4096}, {14336}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, fp8_onednn, DType::kBF16, OneDnnUse::kAlways, Fp8Format(128))
    ->ArgsProduct({{2, 4, 8, 16, 32, 128, 512}, {4096}, {14336}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, fp8_rows, DType::kBF16, OneDnnUse::kAuto, Fp8Format(14336))
    ->ArgsProduct({{1, 16, 128, 512}, {4096}, {14336}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, fp8_fp32, DType::kF32, OneDnnUse::kAuto, Fp8Format(128))
    ->ArgsProduct({{1, 16, 128}, {4096}, {14336}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, int8, DType::kBF16, OneDnnUse::kAuto, Int8Format(32, false))
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 128, 512}, {4096}, {14336}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, int4, DType::kBF16, OneDnnUse::kAuto, Int4Format(32, true))
    ->ArgsProduct({{1, 16, 128, 512}, {4096}, {14336}})
    ->UseRealTime();

BENCHMARK_CAPTURE(BM_Product, bf16, DType::kBF16, OneDnnUse::kNever)
    ->ArgsProduct({{1, 16, 128, 512}, {4096}, {14336}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, bf16_onednn, DType::kBF16, OneDnnUse::kAlways)
    ->ArgsProduct({{1, 16, 128, 512}, {4096}, {14336}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, fp32, DType::kF32, OneDnnUse::kNever)
    ->ArgsProduct({{1, 16, 128}, {4096}, {14336}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Product, fp32_onednn, DType::kF32, OneDnnUse::kAlways)
    ->ArgsProduct({{1, 16, 128}, {4096}, {14336}})
    ->UseRealTime();

}  // namespace
}  // namespace tandem
