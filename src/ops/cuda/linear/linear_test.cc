#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/hashed_uniform.h"
#include "ops/cuda/linear/linear_kernels.h"
#include "ops/cuda/linear/linear_test_bench.h"
#include "ops/cuda/linear/skinny_linear.h"

namespace tandem {
namespace {

TEST_F(CudaLinearTest, MatchesDoublePrecision) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {64, 64}, {192, 128}, {100, 72}, {1, 8}, {37, 29}, {130, 250}, {16, 1}, {576, 192}, {257, 136}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (!HasDType(dtype)) continue;
    for (const auto& [out, in] : shapes) {
      for (const bool bias : {false, true}) {
        Product p = {.out = out, .in = in, .dtype = dtype, .bias = bias};
        const Weight weight = MakeWeight(ops(), p);
        for (const DType y_dtype : {DType::kF32, dtype}) {
          for (const int64_t rows : {1, 2, 7, 16, 33, 129, 300}) {
            p.rows = rows;
            p.y_dtype = y_dtype;
            p.x_gap = rows % 3 * 8;
            p.y_gap = rows % 2 * 8;
            ExpectLinear(ops(), p, weight);
          }
        }
      }
    }
  }
}

TEST_F(CudaLinearTest, RandomShapesAndStrides) {
  std::uniform_int_distribution<int64_t> features(1, 400);
  std::uniform_int_distribution<int64_t> rows(1, 300);
  std::uniform_int_distribution<int64_t> gap(0, 20);
  for (int i = 0; i < 30; ++i) {
    const DType dtype = i % 3 == 0 || !HasDType(DType::kBF16) ? DType::kF16 : DType::kBF16;
    Product p = {.rows = rows(random()), .out = features(random()), .in = features(random()), .dtype = dtype};
    p.y_dtype = i % 2 == 0 ? DType::kF32 : dtype;
    p.bias = i % 5 < 2;
    p.x_gap = gap(random());
    p.y_gap = gap(random());
    ExpectLinear(ops(), p, MakeWeight(ops(), p));
  }
}

TEST_F(CudaLinearTest, NoRows) {
  const Product p = {.out = 32, .in = 64, .dtype = DType::kF16};
  const Weight weight = MakeWeight(ops(), p);
  CudaMatrix memory(device(), DType::kF16, 1, 64);
  ops().Linear(stream(),
               {memory.view().Rows(0, 0), weight.weight.get(), memory.view().Columns(0, 32).Rows(0, 0)});
  stream().Synchronize();
}

// No GPU needed.
TEST(SkinnyChoiceTest, TuringHasFp16) {
  CudaTarget volta = kTuringTarget;
  volta.compute_capability = 70;
  alignas(16) static uint16_t memory[8];
  const auto supports = [](const CudaTarget& target, DType dtype, int64_t rows, int64_t cols) {
    return SkinnyLinearSupports(target, MatrixView::Dense(memory, dtype, rows, cols),
                                MatrixView::Dense(memory, dtype, 32, cols));
  };
  EXPECT_TRUE(supports(kTuringTarget, DType::kF16, kMaxSkinnyRows, 64));
  EXPECT_FALSE(supports(kTuringTarget, DType::kF16, kMaxSkinnyRows + 1, 64));
  EXPECT_FALSE(supports(kTuringTarget, DType::kF16, 1, 60));
  EXPECT_FALSE(supports(kTuringTarget, DType::kBF16, 1, 64));
  EXPECT_FALSE(supports(volta, DType::kF16, 1, 64));
  EXPECT_TRUE(supports(kAmpereTarget, DType::kBF16, 1, 64));
}

TEST_F(CudaLinearTest, SkinnyMatchesDoublePrecision) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{16, 64},    {32, 512},  {45, 200},  {1, 8},
                                                           {5000, 136}, {70, 4096}, {33, 4160}, {40, 14336}};
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const auto& [out, in] : shapes) {
      for (const bool bias : {false, true}) {
        Product p = {.out = out, .in = in, .dtype = dtype, .bias = bias};
        if (!HasDType(dtype)) continue;
        const Weight weight = MakeWeight(ops(), p);
        const CudaLinearWeight& cuda_weight = AsCudaLinearWeight(weight.weight.get());
        for (int64_t rows = 1; rows <= kMaxSkinnyRows; ++rows) {
          p.rows = rows;
          p.y_dtype = rows % 2 == 0 ? dtype : DType::kF32;
          p.x_gap = rows % 3 * 8;
          p.y_gap = rows % 4;
          CudaMatrix x(device(), dtype, rows, in, p.x_gap);
          x.Fill(random());
          if (!SkinnyLinearSupports(cuda_stream().target(), x.view(), cuda_weight.view())) {
            GTEST_SKIP() << "this GPU lacks the skinny kernel";
          }
          CudaMatrix y(device(), p.y_dtype, rows, out, p.y_gap);
          LaunchSkinnyLinear(cuda_stream(), x.view(), cuda_weight.view(), BiasOf(weight), y.view());
          stream().Synchronize();
          ExpectProduct(p, x, weight, y.Download());
        }
      }
    }
  }
}

TEST_F(CudaLinearTest, SkinnyRowsDoNotDependOnEachOther) {
  const Product p = {.out = 100, .in = 1096, .dtype = engine_dtype()};
  const Weight weight = MakeWeight(ops(), p);
  const CudaLinearWeight& cuda_weight = AsCudaLinearWeight(weight.weight.get());
  CudaMatrix x(device(), p.dtype, kMaxSkinnyRows, p.in);
  x.Fill(random());
  CudaMatrix all(device(), DType::kF32, kMaxSkinnyRows, p.out);
  LaunchSkinnyLinear(cuda_stream(), x.view(), cuda_weight.view(), nullptr, all.view());
  CudaMatrix single(device(), DType::kF32, kMaxSkinnyRows, p.out);
  for (int64_t r = 0; r < kMaxSkinnyRows; ++r) {
    LaunchSkinnyLinear(cuda_stream(), x.view().Rows(r, 1), cuda_weight.view(), nullptr,
                       single.view().Rows(r, 1));
  }
  stream().Synchronize();
  all.Download();
  single.Download();
  for (int64_t r = 0; r < kMaxSkinnyRows; ++r) {
    for (int64_t o = 0; o < p.out; ++o) {
      ASSERT_EQ(single.At(r, o), all.At(r, o)) << "row " << r << " column " << o;
    }
  }
}

// Kernels start before their predecessors have ended: a product must not read x, nor write y, too early.
TEST_F(CudaLinearTest, ChainOfSkinnyProductsInAGraph) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kFeatures = 2048;
  constexpr int kLayers = 12;
  constexpr int kRounds = 20;
  std::vector<std::unique_ptr<LinearWeight>> weights;
  for (int layer = 0; layer < kLayers; ++layer) {
    weights.push_back(ops().CreateLinearWeight(kFeatures, kFeatures, engine_dtype()).value());
    // Values keep their size from layer to layer.
    weights.back()->FillRandom({static_cast<uint64_t>(layer), std::sqrt(3.0F / kFeatures)});
  }
  const CudaArray<float> bias(device(), std::vector<float>(kFeatures, 0.25F));
  // Two buffers in turn: a product that writes early destroys what its predecessor still reads.
  CudaMatrix ping(device(), engine_dtype(), kRows, kFeatures);
  CudaMatrix pong(device(), engine_dtype(), kRows, kFeatures);
  const auto enqueue = [&](int layer) {
    const MatrixView from = layer % 2 == 0 ? ping.view() : pong.view();
    const MatrixView to = layer % 2 == 0 ? pong.view() : ping.view();
    const CudaLinearWeight& weight = AsCudaLinearWeight(weights[static_cast<size_t>(layer)].get());
    LaunchSkinnyLinear(cuda_stream(), from, weight.view(), nullptr, to);
    // A kernel of another kind between them now and then.
    if (layer % 3 == 2) LaunchAddBias(cuda_stream(), to, bias.data());
  };
  for (int layer = 0; layer < kLayers; ++layer) enqueue(layer);
  stream().Synchronize();
  stream().BeginCapture();
  for (int layer = 0; layer < kLayers; ++layer) enqueue(layer);
  const std::unique_ptr<Graph> graph = stream().EndCapture();
  for (int round = 0; round < kRounds; ++round) {
    ping.Fill(random());
    const std::vector<float> start(ping.Row(0), ping.Row(0) + kRows * kFeatures);
    for (int layer = 0; layer < kLayers; ++layer) {
      enqueue(layer);
      stream().Synchronize();
    }
    ping.Download();
    const std::vector<float> want(ping.Row(0), ping.Row(0) + kRows * kFeatures);
    std::copy(start.begin(), start.end(), &ping.At(0, 0));
    ping.Upload();
    stream().Launch(*graph);
    stream().Synchronize();
    ping.Download();
    const std::vector<float> got(ping.Row(0), ping.Row(0) + kRows * kFeatures);
    const auto [g, w] = std::mismatch(got.begin(), got.end(), want.begin());
    ASSERT_TRUE(g == got.end()) << "round " << round << ", row " << (g - got.begin()) / kFeatures
                                << " column " << (g - got.begin()) % kFeatures << ": " << *g
                                << ", one by one " << *w;
  }
}

TEST_F(CudaLinearTest, CapturedProductsOfAllKinds) {
  const DType dtype = engine_dtype();
  for (const int64_t rows : {1, 20, 200}) {
    const Product p = {.rows = rows, .out = 320, .in = 256, .dtype = dtype, .y_dtype = dtype, .bias = true};
    const Weight weight = MakeWeight(ops(), p);
    ExpectLinear(ops(), p, weight);
    CudaMatrix x(device(), dtype, rows, p.in);
    CudaMatrix y(device(), dtype, rows, p.out);
    stream().BeginCapture();
    ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
    const std::unique_ptr<Graph> graph = stream().EndCapture();
    for (int replay = 0; replay < 3; ++replay) {
      x.Fill(random());
      stream().Launch(*graph);
      stream().Synchronize();
      ExpectProduct(p, x, weight, y.Download());
    }
  }
}

TEST_F(CudaLinearTest, LoadsFromManyThreads) {
  constexpr int64_t kOut = 16000;
  constexpr int64_t kIn = 2056;  // what a thread loads fills its staging several times
  constexpr int64_t kThreads = 8;
  constexpr int64_t kRowsAThread = kOut / kThreads;
  auto weight = ops().CreateLinearWeight(kOut, kIn, DType::kF16).value();
  std::vector<uint16_t> values(static_cast<size_t>(kOut * kIn));
  for (uint16_t& value : values) value = static_cast<uint16_t>(random()());
  auto pinned = device().Allocate(values.size() * 2, MemoryKind::kPinned, "test").value();
  std::memcpy(pinned.data(), values.data(), values.size() * 2);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const uint16_t* rows = t % 2 == 0 ? values.data() : pinned.as<uint16_t>();
      weight->LoadRows(t * kRowsAThread, kRowsAThread, rows + t * kRowsAThread * kIn);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint16_t> loaded(values.size());
  stream().Copy(loaded.data(), AsCudaLinearWeight(weight.get()).view().data, loaded.size() * 2);
  stream().Synchronize();
  const auto [got, want] = std::mismatch(loaded.begin(), loaded.end(), values.begin());
  ASSERT_TRUE(got == loaded.end()) << "row " << (got - loaded.begin()) / kIn << " column "
                                   << (got - loaded.begin()) % kIn << ": " << *got << ", want " << *want;
}

TEST_F(CudaLinearTest, RandomWeightsAreThoseOfTheHost) {
  constexpr int64_t kOut = 77;
  constexpr int64_t kIn = 130;
  constexpr float kBound = 0.25F;
  auto weight = ops().CreateLinearWeight(kOut, kIn, DType::kF32).value();
  weight->FillRandom({5, kBound});
  std::vector<float> values(static_cast<size_t>(kOut * kIn));
  stream().Copy(values.data(), AsCudaLinearWeight(weight.get()).view().data, values.size() * 4);
  stream().Synchronize();
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], HashedUniform(5, i, kBound)) << "element " << i;
  }
}

TEST_F(CudaLinearTest, BiasOfItsOwn) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (!HasDType(dtype)) continue;
    constexpr int64_t kRows = 1500;
    constexpr int64_t kCols = 301;
    CudaMatrix y(device(), dtype, kRows, kCols, 3);
    y.Fill(random());
    const CudaMatrix before = [&] {
      CudaMatrix copy(device(), dtype, kRows, kCols);
      for (int64_t r = 0; r < kRows; ++r) std::copy_n(y.Row(r), kCols, &copy.At(r, 0));
      return copy;
    }();
    std::vector<float> bias(kCols);
    std::normal_distribution<float> normal;
    for (float& value : bias) value = normal(random());
    const CudaArray<float> device_bias(device(), bias);
    LaunchAddBias(cuda_stream(), y.view(), device_bias.data());
    stream().Synchronize();
    y.Download();
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kCols; ++c) {
        const float want = before.At(r, c) + bias[static_cast<size_t>(c)];
        ASSERT_NEAR(y.At(r, c), want, std::abs(want) * Precision(dtype) + 1e-6)
            << DTypeName(dtype) << " row " << r << " column " << c;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
