#include "ops/cuda/linear/quantized/quantized_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/cuda/linear/quantized/quantized_products.h"
#include "ops/cuda/linear/quantized/quantized_test_bench.h"
#include "ops/cuda/linear/quantized/streamed_codes.h"

namespace tandem {
namespace {

// Of values that products with so many rows are made of: 0 if only numbers of fp32 are rounded.
double WeightPrecision(DType dtype, int64_t rows, bool aligned = true) {
  constexpr CodeRows kRows;
  const bool streams = HasStreamedLinear() && aligned && rows >= kRows.min_streamed;
  // A scale, a minimum and a value, each half a unit.
  if (streams && rows <= kMaxStreamedCodeRows) return dtype == DType::kBF16 ? 3 * 0x1p-8 : 3 * 0x1p-11;
  if (rows <= kRows.max && aligned) return 0.0;
  return dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
}

// No GPU needed. 132 SMs, Llama-3.1-8B.
TEST(NumPartsTest, FillsTheGpu) {
  const auto parts = [](int64_t units, int64_t at_once, int num_slices, int rows) {
    return NumParts({.units = units,
                     .at_once = at_once,
                     .num_slices = num_slices,
                     .rows = rows,
                     .unit_bytes = int64_t{rows} * 128 * 4});
  };
  EXPECT_EQ(parts(32, 528, 64, 8), 8);
  EXPECT_EQ(parts(224, 528, 64, 8), 2);
  EXPECT_EQ(parts(1002, 528, 64, 8), 1);
  // 96 of 132 blocks rather than 48, and 144 would need two waves.
  EXPECT_EQ(parts(48, 132, 64, 128), 2);
  EXPECT_EQ(parts(32, 132, 64, 128), 4);
  EXPECT_EQ(parts(224, 132, 64, 128), 1);
  // Too few slices to divide, or too many sums.
  EXPECT_EQ(parts(5, 528, 7, 8), 1);
  EXPECT_EQ(parts(5, 528, 9, 8), 2);
  EXPECT_EQ(parts(1000, 100'000, 64, 128), 1);
}

// No GPU needed.
TEST(QuantizedChoiceTest, TuringMultipliesCodesAtFp16) {
  CudaTarget volta = kTuringTarget;
  volta.compute_capability = 70;
  EXPECT_TRUE(HasQuantizedProducts(kTuringTarget, DType::kF16));
  EXPECT_FALSE(HasQuantizedProducts(kTuringTarget, DType::kBF16));
  EXPECT_FALSE(HasQuantizedProducts(volta, DType::kF16));
  EXPECT_TRUE(HasQuantizedProducts(kAmpereTarget, DType::kBF16));
  EXPECT_FALSE(HasQuantizedProducts(kAmpereTarget, DType::kF32));
  alignas(16) static uint16_t memory[8];
  const CodesView codes = {.layout = MakeCodeLayout(Int4Format(32, true), 4096), .out_features = 256};
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t rows : {1, 8, 9, 128}) {
      const MatrixView x = MatrixView::Dense(memory, dtype, rows, 4096);
      EXPECT_EQ(QuantizedLinearSupports(kTuringTarget, x, codes), dtype == DType::kF16);
      EXPECT_EQ(QuantizedGateUpSupports(kTuringTarget, x, codes), dtype == DType::kF16 && rows <= 8);
      EXPECT_EQ(QuantizedGateUpSupports(kAmpereTarget, x, codes), rows <= 8);
    }
  }
}

// Codes, scales and factors back again: if this fails, packing is wrong, or dequantizing.
TEST_F(CudaQuantizedTest, DequantizedValuesAreThoseOfTheRows) {
  for (const WeightFormat& format : Formats()) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      if (!HasDType(dtype)) continue;
      const int64_t in = format.group_size * 3;
      const int64_t out = 150;
      const QuantizedTestWeight weight = MakeQuantized(ops(), {out, in, dtype}, format);
      CudaMatrix values(device(), dtype, out, in);
      weight.cuda().LaunchDequantize(cuda_stream(), 0, values.view());
      // A part of them.
      CudaMatrix part(device(), dtype, 22, in);
      weight.cuda().LaunchDequantize(cuda_stream(), 128, part.view());
      stream().Synchronize();
      values.Download();
      part.Download();
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t k = 0; k < in; ++k) {
          const float value = weight.values[static_cast<size_t>(o * in + k)];
          const float want = dtype == DType::kBF16 ? BF16ToF32(F32ToBF16(value)) : F16ToF32(F32ToF16(value));
          ASSERT_EQ(values.At(o, k), want) << weight.Name() << " row " << o << " column " << k;
          if (o < 128) continue;
          ASSERT_EQ(part.At(o - 128, k), want) << weight.Name() << " row " << o << " column " << k;
        }
      }
    }
  }
}

TEST_F(CudaQuantizedTest, EmbeddingReadsItsRows) {
  for (const WeightFormat& format : Formats()) {
    const int64_t in = format.group_size * 5;
    const QuantizedTestWeight weight = MakeQuantized(ops(), {150, in, engine_dtype()}, format);
    const std::vector<int32_t> ids = {149, 0, 64, 63, 64, 128, -1, 150};
    const CudaArray<int32_t> device_ids(device(), ids);
    CudaMatrix out(device(), DType::kF32, static_cast<int64_t>(ids.size()), in, 3);
    ops().Embedding(stream(),
                    {.ids = device_ids.data(), .out = out.view(), .quantized = weight.weight.get()});
    stream().Synchronize();
    out.Download();
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool is_there = ids[i] >= 0 && ids[i] < 150;
      for (int64_t k = 0; k < in; ++k) {
        const float want = is_there ? weight.values[static_cast<size_t>(ids[i] * in + k)] : 0.0F;
        ASSERT_EQ(out.At(static_cast<int64_t>(i), k), want) << weight.Name() << " id " << ids[i] << " " << k;
      }
    }
  }
}

// Rows with a single 1 give single values: if this fails, elements of x and of codes do not meet.
TEST_F(CudaQuantizedTest, SingleElementsMeetTheirCodes) {
  for (const WeightFormat& format : Formats()) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      if (!HasDType(dtype)) continue;
      const int64_t in = format.group_size * 2;
      const int64_t out = 144;
      const QuantizedTestWeight weight = MakeQuantized(ops(), {out, in, dtype}, format);
      for (const int64_t rows : {8, 16, 32, 64, 128}) {
        for (int64_t first = 0; first < in; first += rows) {
          CudaMatrix x(device(), dtype, rows, in);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < in; ++k) x.At(r, k) = k == first + r ? 1.0F : 0.0F;
          }
          x.Upload();
          CudaMatrix y(device(), DType::kF32, rows, out);
          ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
          stream().Synchronize();
          y.Download();
          for (int64_t r = 0; r < std::min(rows, in - first); ++r) {
            for (int64_t o = 0; o < out; ++o) {
              const auto at = static_cast<size_t>(o * in + first + r);
              // Values may be made of what the middle code stands for.
              const float* magnitudes = weight.magnitudes.data() + o * in;
              const float largest = *std::max_element(magnitudes, magnitudes + in);
              ASSERT_NEAR(y.At(r, o), weight.values[at],
                          1e-6 * weight.magnitudes[at] + WeightPrecision(dtype, rows) * largest)
                  << weight.Name() << ", " << rows << " rows: element " << first + r << ", output " << o;
            }
          }
        }
      }
    }
  }
}

TEST_F(CudaQuantizedTest, MatchesDoublePrecision) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{576, 576}, {576, 1536}, {960, 576}, {100, 96},
                                                           {77, 48},   {1, 32},     {130, 1152}};
  for (const WeightFormat& format : Formats()) {
    for (const auto& [out, in] : shapes) {
      if (in % format.group_size != 0) continue;
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        if (!HasDType(dtype)) continue;
        const bool bias = (out + in) % 3 == 0 || out == 100;
        const QuantizedTestWeight weight = MakeQuantized(ops(), {out, in, dtype}, format, bias);
        for (const int64_t rows : {1, 2, 7, 8, 9, 16, 17, 33, 64, 100, 128, 129, 256, 300, 1024}) {
          const DType y_dtype = rows % 2 == 0 ? dtype : DType::kF32;
          CudaMatrix x(device(), dtype, rows, in, rows % 3 * 8);
          x.Fill(random());
          CudaMatrix y(device(), y_dtype, rows, out, rows % 4);
          ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
          stream().Synchronize();
          ExpectQuantizedProduct(x, weight, y.Download(), y_dtype, WeightPrecision(dtype, rows),
                                 fmt::format("{} rows, y {}", rows, DTypeName(y_dtype)));
        }
      }
    }
  }
}

// Few rows multiply codes as the smallest numbers of x's type: sums have to stay within what fp32 holds.
TEST_F(CudaQuantizedTest, FewRowsOfAnyMagnitude) {
  for (const WeightFormat& format : Formats()) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      if (!HasDType(dtype)) continue;
      const int64_t in = format.group_size * 3;
      const QuantizedTestWeight weight = MakeQuantized(ops(), {80, in, dtype}, format);
      const std::vector<float> magnitudes = dtype == DType::kBF16 ? std::vector<float>{1e-15F, 1e-4F, 1e15F}
                                                                  : std::vector<float>{1e-6F, 1e-3F, 1e4F};
      for (const float magnitude : magnitudes) {
        for (const int64_t rows : {1, 8}) {
          CudaMatrix x(device(), dtype, rows, in);
          x.Fill(random());
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < in; ++k) x.At(r, k) *= magnitude;
          }
          x.Upload();
          CudaMatrix y(device(), DType::kF32, rows, 80);
          ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
          stream().Synchronize();
          y.Download();
          // In units of x, so that what ExpectQuantizedProduct allows beside magnitudes means the same.
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < in; ++k) x.At(r, k) /= magnitude;
            for (int64_t o = 0; o < 80; ++o) y.At(r, o) /= magnitude;
          }
          ExpectQuantizedProduct(x, weight, y, DType::kF32, 0.0,
                                 fmt::format("{} rows of magnitude {}", rows, magnitude));
        }
      }
    }
  }
}

// Many blocks share outputs, or each has many slices.
TEST_F(CudaQuantizedTest, LargeShapes) {
  const std::vector<std::pair<QuantizedWeightShape, WeightFormat>> cases = {
      {{4096, 4096, engine_dtype()}, Int4Format(128, true)},
      {{1024, 14336, engine_dtype()}, Int4Format(32, true)},
      {{256, 8192, DType::kF16}, Int8Format(32, false)},
      {{49152, 576, engine_dtype()}, Int8Format(32, false)},
      {{6144, 4096, engine_dtype()}, Int8Format(16, true)},
  };
  for (const auto& [shape, format] : cases) {
    const QuantizedTestWeight weight = MakeQuantized(ops(), shape, format);
    for (const int64_t rows : {1, 8, 16, 32, 64, 128, 200, 257}) {
      CudaMatrix x(device(), shape.dtype, rows, shape.in_features);
      x.Fill(random());
      CudaMatrix y(device(), DType::kF32, rows, shape.out_features);
      ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
      stream().Synchronize();
      ExpectQuantizedProduct(x, weight, y.Download(), DType::kF32, WeightPrecision(shape.dtype, rows),
                             fmt::format("{} rows", rows));
    }
  }
}

TEST_F(CudaQuantizedTest, RowsThatAreNotAlignedTakeTheOtherWay) {
  const QuantizedTestWeight weight =
      MakeQuantized(ops(), {200, 192, engine_dtype()}, Int4Format(32, true), true);
  for (const int64_t rows : {1, 5, 20}) {
    CudaMatrix x(device(), engine_dtype(), rows, 192, 3);
    x.Fill(random());
    CudaMatrix y(device(), engine_dtype(), rows, 200);
    ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
    stream().Synchronize();
    ExpectQuantizedProduct(x, weight, y.Download(), engine_dtype(),
                           WeightPrecision(engine_dtype(), rows, false),
                           fmt::format("{} rows with a gap of 3", rows));
  }
}

TEST_F(CudaQuantizedTest, NothingIsWrittenBesideY) {
  const QuantizedTestWeight weight = MakeQuantized(ops(), {144, 128, engine_dtype()}, Int4Format(128, true));
  for (const int64_t rows : {1, 9, 20, 40, 100, 300}) {
    CudaMatrix x(device(), engine_dtype(), rows, 128);
    x.Fill(random());
    // A row and 8 columns more than the result.
    CudaMatrix y(device(), DType::kF32, rows + 1, 152);
    ops().Linear(stream(), {x.view(), weight.weight.get(), y.view().Rows(0, rows).Columns(0, 144)});
    stream().Synchronize();
    y.Download();
    for (int64_t r = 0; r <= rows; ++r) {
      for (int64_t c = r == rows ? 0 : 144; c < 152; ++c) {
        ASSERT_TRUE(std::isnan(y.At(r, c))) << rows << " rows: row " << r << " column " << c;
      }
    }
  }
}

// Blocks that share outputs end in any order.
TEST_F(CudaQuantizedTest, TheSameProductHasTheSameBits) {
  const QuantizedTestWeight weight = MakeQuantized(ops(), {256, 4096, engine_dtype()}, Int4Format(32, true));
  for (const int64_t rows : {1, 8, 16, 32, 64, 128}) {
    CudaMatrix x(device(), engine_dtype(), rows, 4096);
    x.Fill(random());
    CudaMatrix first(device(), DType::kF32, rows, 256);
    ops().Linear(stream(), {x.view(), weight.weight.get(), first.view()});
    stream().Synchronize();
    first.Download();
    for (int repeat = 0; repeat < 20; ++repeat) {
      CudaMatrix again(device(), DType::kF32, rows, 256);
      ops().Linear(stream(), {x.view(), weight.weight.get(), again.view()});
      stream().Synchronize();
      again.Download();
      for (int64_t r = 0; r < rows; ++r) {
        ASSERT_TRUE(std::equal(first.Row(r), first.Row(r) + 256, again.Row(r)))
            << rows << " rows, row " << r << ", repeat " << repeat;
      }
    }
  }
}

TEST_F(CudaQuantizedTest, RowsDoNotDependOnEachOther) {
  const QuantizedTestWeight weight = MakeQuantized(ops(), {300, 1152, engine_dtype()}, Int8Format(64, true));
  // Pairs of counts that one tiling computes.
  for (const auto& [many, few] :
       {std::pair<int64_t, int64_t>{8, 3}, {16, 9}, {32, 17}, {64, 40}, {128, 70}}) {
    CudaMatrix x(device(), engine_dtype(), many, 1152);
    x.Fill(random());
    CudaMatrix all(device(), DType::kF32, many, 300);
    CudaMatrix some(device(), DType::kF32, few, 300);
    ops().Linear(stream(), {x.view(), weight.weight.get(), all.view()});
    ops().Linear(stream(), {x.view().Rows(many - few, few), weight.weight.get(), some.view()});
    stream().Synchronize();
    all.Download();
    some.Download();
    for (int64_t r = 0; r < few; ++r) {
      for (int64_t o = 0; o < 300; ++o) {
        ASSERT_EQ(some.At(r, o), all.At(many - few + r, o))
            << few << " of " << many << " rows: " << r << " " << o;
      }
    }
  }
}

TEST_F(CudaQuantizedTest, GateUpIsAProductAndSilu) {
  for (const WeightFormat& format : {Int4Format(32, true), Int8Format(64, false)}) {
    for (const int64_t mlp : {int64_t{96}, int64_t{100}}) {
      const QuantizedWeightShape shape = {2 * mlp, 192, engine_dtype(), true};
      const QuantizedTestWeight weight = MakeQuantized(ops(), shape, format, mlp == 100);
      for (const int64_t rows : {1, 20, 100, 300}) {
        CudaMatrix x(device(), engine_dtype(), rows, 192);
        x.Fill(random());
        CudaMatrix scratch(device(), engine_dtype(), rows, 2 * mlp);
        CudaMatrix y(device(), engine_dtype(), rows, mlp);
        ops().GateUp(stream(), {x.view(), weight.weight.get(), scratch.view(), y.view()});
        stream().Synchronize();
        y.Download();
        struct Product {
          double value = 0.0;
          double error = 0.0;  // of weights that are rounded first, as those of many rows are
        };
        const auto product = [&](int64_t row, int64_t o) {
          Product sum;
          if (!weight.bias.empty()) sum.value = weight.bias[static_cast<size_t>(o)];
          for (int64_t k = 0; k < 192; ++k) {
            const double term =
                double{x.At(row, k)} * double{weight.values[static_cast<size_t>(o * 192 + k)]};
            sum.value += term;
            sum.error += WeightPrecision(engine_dtype(), rows) * std::abs(term);
          }
          return sum;
        };
        for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
          for (int64_t j = 0; j < mlp; ++j) {
            const auto [gate, gate_error] = product(row, j);
            const auto [up, up_error] = product(row, mlp + j);
            const double want = gate / (1.0 + std::exp(-gate)) * up;
            // gate and up are rounded to bf16 on the way. The slope of SiLU is at most 1.1.
            const double allowed = 0.02 * (std::abs(want) + std::abs(gate) + std::abs(up)) + 1e-2 +
                                   1.1 * gate_error * std::abs(up) + std::abs(gate) * up_error;
            ASSERT_NEAR(y.At(row, j), want, allowed)
                << weight.Name() << ", " << rows << " rows: row " << row << " column " << j;
          }
        }
      }
    }
  }
}

// Kernels start before their predecessors have ended, and share a workspace: results are those of products
// that wait for each other.
TEST_F(CudaQuantizedTest, ChainOfProductsInAGraph) {
  constexpr int64_t kFeatures = 2048;
  // Codes of 4 bits without minimum are -0.5 in the mean, so that each product makes x some five times as
  // large.
  const int num_layers = engine_dtype() == DType::kF16 ? 4 : 12;
  for (const auto& [rows, format] : {std::pair{int64_t{1}, Int4Format(128, true)},
                                     {5, Int4Format(32, true)},
                                     {16, Int8Format(32, false)},
                                     {40, Int4Format(32, false)},
                                     {128, Int4Format(128, true)},
                                     {300, Int4Format(32, true)}}) {
    std::vector<std::unique_ptr<QuantizedLinearWeight>> weights;
    for (int layer = 0; layer < num_layers; ++layer) {
      weights.push_back(ops().CreateQuantizedWeight({kFeatures, kFeatures, engine_dtype()}, format).value());
      weights.back()->FillRandom({static_cast<uint64_t>(layer), std::sqrt(3.0F / kFeatures)});
    }
    CudaMatrix ping(device(), engine_dtype(), rows, kFeatures);
    CudaMatrix pong(device(), engine_dtype(), rows, kFeatures);
    const auto enqueue = [&](int layer) {
      ops().Linear(stream(),
                   {layer % 2 == 0 ? ping.view() : pong.view(), weights[static_cast<size_t>(layer)].get(),
                    layer % 2 == 0 ? pong.view() : ping.view()});
    };
    ping.Fill(random());
    for (int layer = 0; layer < num_layers; ++layer) enqueue(layer);
    stream().Synchronize();
    stream().BeginCapture();
    for (int layer = 0; layer < num_layers; ++layer) enqueue(layer);
    const std::unique_ptr<Graph> graph = stream().EndCapture();
    for (int round = 0; round < 10; ++round) {
      ping.Fill(random());
      const std::vector<float> start(ping.Row(0), ping.Row(0) + rows * kFeatures);
      for (int layer = 0; layer < num_layers; ++layer) {
        enqueue(layer);
        stream().Synchronize();
      }
      ping.Download();
      const std::vector<float> want(ping.Row(0), ping.Row(0) + rows * kFeatures);
      std::copy(start.begin(), start.end(), &ping.At(0, 0));
      ping.Upload();
      stream().Launch(*graph);
      stream().Synchronize();
      ping.Download();
      const std::vector<float> got(ping.Row(0), ping.Row(0) + rows * kFeatures);
      const auto [g, w] = std::mismatch(got.begin(), got.end(), want.begin());
      ASSERT_TRUE(g == got.end()) << rows << " rows, round " << round << ", row "
                                  << (g - got.begin()) / kFeatures << " column "
                                  << (g - got.begin()) % kFeatures << ": " << *g << ", one by one " << *w;
    }
  }
}

// A slice has fewer SMs and other numbers of parts.
TEST_F(CudaQuantizedTest, WorksInASlice) {
  auto sliced = CreateCudaDevice({.sm_limit = 8});
  if (!sliced.ok()) GTEST_SKIP() << sliced.error().message;
  const auto slice_ops = CreateCudaOps(sliced->get(), {.tuning_folder = "", .tune_linear = false});
  const auto slice_stream = (*sliced)->CreateStream(StreamKind::kCompute, "slice");
  const QuantizedTestWeight weight =
      MakeQuantized(*slice_ops, {700, 2048, engine_dtype()}, Int4Format(128, true));
  for (const int64_t rows : {1, 12, 60, 200, 300}) {
    CudaMatrix x(**sliced, engine_dtype(), rows, 2048);
    x.Fill(random());
    CudaMatrix y(**sliced, DType::kF32, rows, 700);
    slice_ops->Linear(*slice_stream, {x.view(), weight.weight.get(), y.view()});
    slice_stream->Synchronize();
    ExpectQuantizedProduct(x, weight, y.Download(), DType::kF32, WeightPrecision(engine_dtype(), rows),
                           fmt::format("{} rows in a slice", rows));
  }
}

TEST_F(CudaQuantizedTest, RandomWeightsAreThoseOfTheHost) {
  for (const WeightFormat& format : {Int4Format(128, true), Int8Format(128, false), Int8Format(32, true)}) {
    constexpr int64_t kOut = 200;
    constexpr int64_t kIn = 384;
    for (const bool is_gate_up : {false, true}) {
      const auto weight =
          ops().CreateQuantizedWeight({kOut, kIn, engine_dtype(), is_gate_up}, format).value();
      weight->FillRandom({99, 0.035F});
      QuantizedRows rows;
      HashedRows(99, 0.035F, 0, kOut, kIn, format, &rows);
      std::vector<float> want(static_cast<size_t>(kOut * kIn));
      DequantizeRows(rows, want.data());
      std::vector<int32_t> places(kOut);
      for (int32_t row = 0; row < kOut; ++row) {
        places[static_cast<size_t>(row)] =
            is_gate_up ? static_cast<int32_t>(GateUpOrder(kOut / 2).PlaceOf(row)) : row;
      }
      const CudaArray<int32_t> ids(device(), places);
      CudaMatrix values(device(), DType::kF32, kOut, kIn);
      ops().Embedding(stream(), {.ids = ids.data(), .out = values.view(), .quantized = weight.get()});
      stream().Synchronize();
      values.Download();
      for (int64_t i = 0; i < kOut * kIn; ++i) {
        // Minimums of 8 bits have 12 bits here, of which fp16 holds 11.
        const float allowed = format.has_minimum && format.bits() == 8 ? 0.035F / 2048 : 0.0F;
        ASSERT_NEAR(values.At(i / kIn, i % kIn), want[static_cast<size_t>(i)], allowed)
            << DescribeWeightFormat(format) << " row " << i / kIn << " column " << i % kIn;
      }
    }
  }
}

// Beyond what fp16 alone holds: the factor of a row brings its scales into range.
TEST_F(CudaQuantizedTest, ScalesOfAnyMagnitudeKeepElevenBits) {
  for (const float size : {1e-30F, 3e-9F, 1e-3F, 1.0F, 6e4F, 1e10F}) {
    QuantizedRows rows;
    rows.Resize(Int4Format(32, true), 1, 64);
    for (size_t i = 0; i < 64; ++i) rows.codes[i] = static_cast<uint8_t>(i % 16);
    rows.scales = {size, size * 0.01F};
    rows.minimums = {-8.3F * size, -0.077F * size};
    const auto weight = ops().CreateQuantizedWeight({1, 64, engine_dtype()}, rows.format).value();
    weight->LoadQuantizedRows(0, rows);
    std::vector<float> wanted(64);
    DequantizeRows(rows, wanted.data());
    const CudaArray<int32_t> ids(device(), {0});
    CudaMatrix found(device(), DType::kF32, 1, 64);
    ops().Embedding(stream(), {.ids = ids.data(), .out = found.view(), .quantized = weight.get()});
    stream().Synchronize();
    found.Download();
    for (int64_t i = 0; i < 64; ++i) {
      const float group = i < 32 ? size : size * 0.01F;
      ASSERT_NEAR(found.At(0, i), wanted[static_cast<size_t>(i)], 16 * group * 0x1p-11F) << size << " " << i;
    }
  }
}

TEST_F(CudaQuantizedTest, LoadsFloatsRoundedToTheNearestCodes) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    if (!HasDType(dtype)) continue;
    std::vector<float> values(3 * 64);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random());
    const std::vector<std::byte> bytes = Encode(dtype, &values);
    const auto weight = ops().CreateQuantizedWeight({3, 64, dtype}, Int8Format(32, true)).value();
    weight->LoadRows(0, 3, bytes.data());
    const CudaArray<int32_t> ids(device(), {0, 1, 2});
    CudaMatrix found(device(), DType::kF32, 3, 64);
    ops().Embedding(stream(), {.ids = ids.data(), .out = found.view(), .quantized = weight.get()});
    stream().Synchronize();
    found.Download();
    for (int64_t i = 0; i < 3 * 64; ++i) {
      EXPECT_NEAR(found.At(i / 64, i % 64), values[static_cast<size_t>(i)], 0.02F) << i;
    }
  }
}

TEST_F(CudaQuantizedTest, LoadsFromManyThreads) {
  constexpr int64_t kOut = 1600;
  constexpr int64_t kIn = 576;
  constexpr int64_t kThreads = 8;
  const WeightFormat format = Int4Format(32, true);
  const auto weight = ops().CreateQuantizedWeight({kOut, kIn, engine_dtype()}, format).value();
  const QuantizedRows rows = RandomRows(format, kOut, kIn);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Every eighth row: neighbours that share words come from different threads.
      for (int64_t row = t; row < kOut; row += kThreads) {
        QuantizedRows one;
        one.Resize(format, 1, kIn);
        std::copy_n(rows.codes.begin() + row * kIn, kIn, one.codes.begin());
        std::copy_n(rows.scales.begin() + row * one.num_groups(), one.num_groups(), one.scales.begin());
        std::copy_n(rows.minimums.begin() + row * one.num_groups(), one.num_groups(), one.minimums.begin());
        weight->LoadQuantizedRows(row, one);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<float> want(static_cast<size_t>(kOut * kIn));
  DequantizeRows(rows, want.data());
  std::vector<int32_t> all(kOut);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  const CudaArray<int32_t> ids(device(), all);
  CudaMatrix found(device(), DType::kF32, kOut, kIn);
  ops().Embedding(stream(), {.ids = ids.data(), .out = found.view(), .quantized = weight.get()});
  stream().Synchronize();
  found.Download();
  for (int64_t i = 0; i < kOut * kIn; ++i) {
    ASSERT_EQ(found.At(i / kIn, i % kIn), want[static_cast<size_t>(i)])
        << "row " << i / kIn << " column " << i % kIn;
  }
}

TEST_F(CudaQuantizedTest, RefusesWhatItCannotMultiply) {
  const auto refused = [&](const QuantizedWeightShape& shape, const WeightFormat& format) {
    EXPECT_FALSE(ops().KeepsQuantized(format, shape.in_features, shape.dtype));
    const auto weight = ops().CreateQuantizedWeight(shape, format);
    return weight.ok() ? ErrorCode::kIo : weight.error().code;
  };
  EXPECT_EQ(refused({64, 64, DType::kF32}, Int4Format(32, false)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 80, engine_dtype()}, Int4Format(32, false)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 64, engine_dtype()}, Int4Format(8, false)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 64, engine_dtype()}, WeightFormat()), ErrorCode::kUnsupported);
  const auto keeping = CreateCudaOps(&device(), {.tune_linear = false, .keep_quantized = true});
  EXPECT_TRUE(keeping->KeepsQuantized(Int4Format(32, true), 576, engine_dtype()));
  EXPECT_TRUE(keeping->KeepsQuantized(Int8Format(16, false), 576, DType::kF16));
  const auto widening = CreateCudaOps(&device(), {.tune_linear = false, .keep_quantized = false});
  EXPECT_FALSE(widening->KeepsQuantized(Int4Format(32, true), 576, engine_dtype()));
}

// Measured algorithms of the values' shape.
TEST_F(CudaQuantizedTest, TunedProductsOfManyRows) {
  const TemporaryFolder folder("quantized-tuning");
  const auto tuned =
      CreateCudaOps(&device(), {.tuning_folder = folder.path(), .tune_linear = true, .hot_choice = false});
  const QuantizedTestWeight weight =
      MakeQuantized(*tuned, {512, 1024, engine_dtype()}, Int4Format(128, true));
  const LinearWeight* weights[] = {weight.weight.get()};
  // The last: more than any GPU multiplies as codes.
  const int64_t row_counts[] = {8, 128, 512, 2 * kMaxStreamedCodeRows};
  tuned->TuneLinear(stream(), {.weights = weights, .y_dtype = engine_dtype(), .row_counts = row_counts});
  EXPECT_EQ(folder.files().size(), 1U);
  for (const int64_t rows : {int64_t{8}, int64_t{128}, int64_t{500}, int64_t{512}, row_counts[3]}) {
    CudaMatrix x(device(), engine_dtype(), rows, 1024);
    x.Fill(random());
    CudaMatrix y(device(), engine_dtype(), rows, 512);
    tuned->Linear(stream(), {x.view(), weight.weight.get(), y.view()});
    stream().Synchronize();
    ExpectQuantizedProduct(x, weight, y.Download(), engine_dtype(), WeightPrecision(engine_dtype(), rows),
                           fmt::format("{} rows", rows));
  }
}

}  // namespace
}  // namespace tandem
