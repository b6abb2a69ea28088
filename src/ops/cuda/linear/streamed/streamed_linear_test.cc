#include "ops/cuda/linear/streamed/streamed_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/linear/linear_kernels.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/linear_test_bench.h"

namespace tandem {
namespace {

TEST(StreamedLinearTest, NamesAreReadBack) {
  for (const StreamedLinear kernel : kStreamedLinears) {
    EXPECT_EQ(StreamedLinearFromName(StreamedLinearName(kernel)), kernel);
    EXPECT_LE(MaxRowsOf(kernel), kMaxStreamedRows);
  }
  EXPECT_EQ(StreamedLinearFromName("none"), StreamedLinear::kNone);
  EXPECT_EQ(StreamedLinearFromName("other"), std::nullopt);
}

class CudaStreamedLinearTest : public CudaLinearTest {
 protected:
  void SetUp() override {
    CudaLinearTest::SetUp();
    if (IsSkipped()) return;
    if (!HasStreamedLinear() || cuda_stream().target().compute_capability != 90) {
      GTEST_SKIP() << "needs compute capability 9.0 and a build with streamed products";
    }
    runner_ = std::make_unique<LinearRunner>(&device());
    runner_->PrepareWorkspace(cuda_stream());
  }

  LinearRunner& runner() { return *runner_; }

  static LinearAlgorithm AlgorithmOf(StreamedLinear kernel) {
    LinearAlgorithm algorithm;
    algorithm.method = LinearMethod::kStreamed;
    algorithm.streamed = kernel;
    return algorithm;
  }

  static LinearArgs Args(const CudaMatrix& x, const LinearWeight* weight, const CudaMatrix& y) {
    return {.x = x.view(), .weight = weight, .y = y.view()};
  }

  struct Reference {
    double value = 0.0;
    double magnitude = 0.0;  // sum of what is added, without signs
  };
  static std::vector<Reference> ReferenceOf(const Product& p, const CudaMatrix& x, const Weight& weight) {
    std::vector<Reference> references;
    references.reserve(static_cast<size_t>(p.rows * p.out));
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t o = 0; o < p.out; ++o) {
        const float* w = weight.values.data() + o * p.in;
        Reference sum;
        for (int64_t k = 0; k < p.in; ++k) {
          const double term = double{x.Row(r)[k]} * double{w[k]};
          sum.value += term;
          sum.magnitude += std::abs(term);
        }
        if (!weight.bias.empty()) sum.value += double{weight.bias[static_cast<size_t>(o)]};
        references.push_back(sum);
      }
    }
    return references;
  }

  // Every kernel that can do the product, with both types of results.
  void ExpectAllKernels(Product p, const Weight& weight) {
    CudaMatrix x(device(), p.dtype, p.rows, p.in, p.x_gap);
    x.Fill(random());
    const std::vector<Reference> references = ReferenceOf(p, x, weight);
    for (const DType y_dtype : {DType::kF32, p.dtype}) {
      p.y_dtype = y_dtype;
      for (const StreamedLinear kernel : kStreamedLinears) {
        if (MaxRowsOf(kernel) < p.rows) continue;
        CudaMatrix y(device(), y_dtype, p.rows, p.out, p.y_gap);
        const LinearArgs args = Args(x, weight.weight.get(), y);
        ASSERT_TRUE(runner().CanRun(args, AlgorithmOf(kernel)));
        ASSERT_TRUE(runner().Run(cuda_stream(), args, AlgorithmOf(kernel)));
        stream().Synchronize();
        y.Download();
        int64_t num_wrong = 0;
        std::string first;
        for (int64_t r = 0; r < p.rows; ++r) {
          for (int64_t o = 0; o < p.out; ++o) {
            const Reference& want = references[static_cast<size_t>(r * p.out + o)];
            const double allowed = Precision(y_dtype) * std::abs(want.value) + 1e-5 * want.magnitude + 1e-6;
            if (std::abs(y.At(r, o) - want.value) <= allowed) continue;  // false for NaN
            if (num_wrong++ == 0) {
              first = fmt::format("row {} column {}: got {}, want {}", r, o, y.At(r, o), want.value);
            }
          }
        }
        EXPECT_EQ(num_wrong, 0) << StreamedLinearName(kernel) << ", " << Name(p) << ": " << first;
      }
    }
  }

  // Values that keep their size from layer to layer.
  std::unique_ptr<LinearWeight> RandomWeight(int64_t out, int64_t in, uint64_t seed) {
    auto weight = ops().CreateLinearWeight(out, in, DType::kBF16).value();
    weight->FillRandom({seed, std::sqrt(3.0F / static_cast<float>(in))});
    return weight;
  }

  static std::vector<float> ValuesOf(CudaMatrix& matrix) {
    matrix.Download();
    return {matrix.Row(0), matrix.Row(0) + matrix.rows() * matrix.cols()};
  }

  // Where they differ first, for messages.
  static std::string Difference(const std::vector<float>& got, const std::vector<float>& want, int64_t cols) {
    int64_t count = 0;
    std::string first;
    for (size_t i = 0; i < want.size(); ++i) {
      if (got[i] == want[i]) continue;
      const auto at = static_cast<int64_t>(i);
      if (count++ == 0) {
        first = fmt::format("row {} column {}: {}, want {}", at / cols, at % cols, got[i], want[i]);
      }
    }
    return count == 0 ? "" : fmt::format("{} of {} elements, the first {}", count, want.size(), first);
  }

 private:
  std::unique_ptr<LinearRunner> runner_;
};

// The simplest product that tells where an element of the weight or of x ends up: each result is one product
// of two small integers, which says what was read.
TEST_F(CudaStreamedLinearTest, ElementsAreWhereTheyBelong) {
  constexpr int64_t kOut = 256;
  constexpr int64_t kIn = 128;
  auto weight = ops().CreateLinearWeight(kOut, kIn, DType::kBF16).value();
  for (const StreamedLinear kernel : kStreamedLinears) {
    SCOPED_TRACE(StreamedLinearName(kernel));
    const int64_t rows = MaxRowsOf(kernel);
    for (const int64_t k : {0, 1, 7, 8, 15, 16, 63, 64, 127}) {
      // Row o of the weight has o % 128 + 1 at column k; row r of x has r % 16 + 1 there.
      std::vector<float> values(kOut * kIn);
      for (int64_t o = 0; o < kOut; ++o) values[o * kIn + k] = static_cast<float>(o % 128 + 1);
      const std::vector<std::byte> bytes = Encode(DType::kBF16, &values);
      weight->LoadRows(0, kOut, bytes.data());
      CudaMatrix x(device(), DType::kBF16, rows, kIn);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < kIn; ++c) x.At(r, c) = c == k ? static_cast<float>(r % 16 + 1) : 0.0F;
      }
      x.Upload();
      CudaMatrix y(device(), DType::kF32, rows, kOut);
      ASSERT_TRUE(runner().Run(cuda_stream(), Args(x, weight.get(), y), AlgorithmOf(kernel)));
      stream().Synchronize();
      std::vector<float> want;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < kOut; ++o) want.push_back(static_cast<float>((o % 128 + 1) * (r % 16 + 1)));
      }
      ASSERT_EQ(Difference(ValuesOf(y), want, kOut), "") << "column " << k;
    }
  }
}

TEST_F(CudaStreamedLinearTest, MatchesDoublePrecision) {
  // Tiles that are full and not, of a step and of many, whole and in parts.
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {128, 64}, {256, 128}, {8, 8}, {264, 72}, {136, 520}, {1000, 328}, {264, 2048}, {1544, 1160}};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const auto& [out, in] : shapes) {
      for (const bool bias : {false, true}) {
        Product p = {.out = out, .in = in, .dtype = dtype, .bias = bias};
        const Weight weight = MakeWeight(ops(), p);
        for (const int64_t rows : {9, 16, 17, 64, 100, 128, 200, 256}) {
          p.rows = rows;
          p.x_gap = rows % 3 * 8;
          p.y_gap = rows % 2 * 8;
          ExpectAllKernels(p, weight);
        }
      }
    }
  }
}

TEST_F(CudaStreamedLinearTest, NothingElseIsWritten) {
  constexpr int64_t kRows = 20;
  constexpr int64_t kOut = 136;
  const std::unique_ptr<LinearWeight> weight = RandomWeight(kOut, 1032, 1);
  CudaMatrix x(device(), DType::kBF16, kRows, 1032);
  x.Fill(random());
  for (const StreamedLinear kernel : kStreamedLinears) {
    for (const DType y_dtype : {DType::kF32, DType::kBF16}) {
      CudaMatrix y(device(), y_dtype, 300, 600);
      ASSERT_TRUE(
          runner().Run(cuda_stream(),
                       {.x = x.view(), .weight = weight.get(), .y = y.view().Rows(0, kRows).Columns(0, kOut)},
                       AlgorithmOf(kernel)));
      stream().Synchronize();
      y.Download();
      for (int64_t r = 0; r < y.rows(); ++r) {
        for (int64_t c = 0; c < y.cols(); ++c) {
          ASSERT_EQ(std::isnan(y.At(r, c)), r >= kRows || c >= kOut)
              << StreamedLinearName(kernel) << ", y " << DTypeName(y_dtype) << ", row " << r << " column "
              << c;
        }
      }
    }
  }
}

// Too large for the host: against cuBLASLt.
TEST_F(CudaStreamedLinearTest, ShapesOfALayer) {
  for (const auto& [out, in] :
       {std::pair<int64_t, int64_t>{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}) {
    const std::unique_ptr<LinearWeight> weight = RandomWeight(out, in, 3);
    for (const int64_t rows : {16, 64, 100, 128, 192, 256}) {
      CudaMatrix x(device(), DType::kBF16, rows, in);
      x.Fill(random());
      CudaMatrix y(device(), DType::kF32, rows, out);
      CudaMatrix reference(device(), DType::kF32, rows, out);
      ops().Linear(stream(), Args(x, weight.get(), reference));
      stream().Synchronize();
      std::vector<double> want;
      for (const float value : ValuesOf(reference)) want.push_back(value);
      for (const StreamedLinear kernel : kStreamedLinears) {
        if (MaxRowsOf(kernel) < rows) continue;
        ASSERT_TRUE(runner().Run(cuda_stream(), Args(x, weight.get(), y), AlgorithmOf(kernel)));
        stream().Synchronize();
        const std::vector<float> got = ValuesOf(y);
        EXPECT_LE(RelativeError(got.data(), want.data(), rows * out), 1e-4)
            << StreamedLinearName(kernel) << ", " << rows << " rows, weight [" << out << ", " << in << "]";
      }
    }
  }
}

TEST_F(CudaStreamedLinearTest, TheSameBitsOnRepeat) {
  const std::unique_ptr<LinearWeight> weight = RandomWeight(6144, 4096, 1);
  for (const StreamedLinear kernel : kStreamedLinears) {
    CudaMatrix x(device(), DType::kBF16, MaxRowsOf(kernel), 4096);
    x.Fill(random());
    CudaMatrix y(device(), DType::kF32, MaxRowsOf(kernel), 6144);
    std::vector<float> first;
    for (int repeat = 0; repeat < 30; ++repeat) {
      ASSERT_TRUE(runner().Run(cuda_stream(), Args(x, weight.get(), y), AlgorithmOf(kernel)));
      // Now and then behind another one, whose end it overlaps.
      if (repeat % 3 == 0) {
        ASSERT_TRUE(runner().Run(cuda_stream(), Args(x, weight.get(), y), AlgorithmOf(kernel)));
      }
      stream().Synchronize();
      const std::vector<float> got = ValuesOf(y);
      if (repeat == 0) first = got;
      ASSERT_EQ(Difference(got, first, 6144), "") << StreamedLinearName(kernel) << ", repeat " << repeat;
    }
  }
}

TEST_F(CudaStreamedLinearTest, RowsDoNotDependOnEachOther) {
  const std::unique_ptr<LinearWeight> weight = RandomWeight(1160, 2056, 1);
  for (const StreamedLinear kernel : kStreamedLinears) {
    const int64_t rows = MaxRowsOf(kernel);
    CudaMatrix x(device(), DType::kBF16, rows, 2056);
    x.Fill(random());
    CudaMatrix y(device(), DType::kF32, rows, 1160);
    ASSERT_TRUE(runner().Run(cuda_stream(), Args(x, weight.get(), y), AlgorithmOf(kernel)));
    stream().Synchronize();
    std::vector<float> want = ValuesOf(y);
    want.resize(1160);
    // Others, and NaN among them.
    for (int64_t r = 1; r < rows; ++r) {
      for (int64_t c = 0; c < x.cols(); ++c) x.At(r, c) = r % 2 == 0 ? std::nanf("") : static_cast<float>(c);
    }
    x.Upload();
    ASSERT_TRUE(runner().Run(cuda_stream(), Args(x, weight.get(), y), AlgorithmOf(kernel)));
    stream().Synchronize();
    std::vector<float> got = ValuesOf(y);
    got.resize(1160);
    EXPECT_EQ(Difference(got, want, 1160), "") << StreamedLinearName(kernel);
  }
}

// Kernels start before their predecessors have ended: a product must not read x, nor write y or the
// workspace, too early. Arrivals are 0 again after each.
TEST_F(CudaStreamedLinearTest, ChainInAGraph) {
  constexpr int64_t kFeatures = 2048;
  constexpr int kLayers = 12;
  std::vector<std::unique_ptr<LinearWeight>> weights;
  weights.reserve(kLayers);
  for (int layer = 0; layer < kLayers; ++layer) {
    weights.push_back(RandomWeight(kFeatures, kFeatures, static_cast<uint64_t>(layer)));
  }
  const CudaArray<float> bias(device(), std::vector<float>(kFeatures, 0.25F));
  for (const int64_t rows : {40, 100, 180, 256}) {
    // Two buffers in turn: a product that writes early destroys what its predecessor still reads.
    CudaMatrix ping(device(), DType::kBF16, rows, kFeatures);
    CudaMatrix pong(device(), DType::kBF16, rows, kFeatures);
    std::vector<StreamedLinear> kernels;
    for (const StreamedLinear kernel : kStreamedLinears) {
      if (MaxRowsOf(kernel) >= rows) kernels.push_back(kernel);
    }
    const auto enqueue = [&](int layer) {
      const CudaMatrix& from = layer % 2 == 0 ? ping : pong;
      const CudaMatrix& to = layer % 2 == 0 ? pong : ping;
      const auto number = static_cast<size_t>(layer);
      ASSERT_TRUE(runner().Run(cuda_stream(), Args(from, weights[number].get(), to),
                               AlgorithmOf(kernels[number % kernels.size()])));
      // Kernels of other kinds between them now and then; cuBLASLt's may use the workspace.
      if (layer % 3 == 2) LaunchAddBias(cuda_stream(), to.view(), bias.data());
    };
    for (int layer = 0; layer < kLayers; ++layer) enqueue(layer);
    stream().Synchronize();
    stream().BeginCapture();
    for (int layer = 0; layer < kLayers; ++layer) enqueue(layer);
    const std::unique_ptr<Graph> graph = stream().EndCapture();
    for (int round = 0; round < 10; ++round) {
      ping.Fill(random());
      const std::vector<float> start(ping.Row(0), ping.Row(0) + rows * kFeatures);
      for (int layer = 0; layer < kLayers; ++layer) {
        enqueue(layer);
        stream().Synchronize();
      }
      const std::vector<float> want = ValuesOf(ping);
      std::copy(start.begin(), start.end(), &ping.At(0, 0));
      ping.Upload();
      stream().Launch(*graph);
      stream().Synchronize();
      ASSERT_EQ(Difference(ValuesOf(ping), want, kFeatures), "") << rows << " rows, round " << round;
    }
  }
}

TEST_F(CudaStreamedLinearTest, InASlice) {
  for (const int num_sms : {8, 24}) {
    const auto slice = CreateCudaDevice({.sm_limit = num_sms});
    ASSERT_TRUE(slice.ok()) << slice.error().message;
    const std::unique_ptr<Ops> slice_ops =
        CreateCudaOps(slice->get(), {.tuning_folder = "", .tune_linear = false});
    const std::unique_ptr<Stream> in_slice = (*slice)->CreateStream(StreamKind::kCompute, "slice");
    LinearRunner slice_runner(slice->get());
    slice_runner.PrepareWorkspace(AsCudaStream(*in_slice));
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{1000, 328}, {1544, 1160}}) {
      Product p = {.out = out, .in = in, .y_dtype = DType::kF32};
      const Weight weight = MakeWeight(*slice_ops, p);
      for (const StreamedLinear kernel : kStreamedLinears) {
        SCOPED_TRACE(StreamedLinearName(kernel));
        p.rows = MaxRowsOf(kernel);
        CudaMatrix x(**slice, p.dtype, p.rows, p.in);
        x.Fill(random());
        CudaMatrix y(**slice, p.y_dtype, p.rows, p.out);
        ASSERT_TRUE(
            slice_runner.Run(AsCudaStream(*in_slice), Args(x, weight.weight.get(), y), AlgorithmOf(kernel)));
        in_slice->Synchronize();
        ExpectProduct(p, x, weight, y.Download());
      }
    }
  }
}

// Blocks of both are resident at once and of neither all: nobody may wait for a block that has no place.
TEST_F(CudaStreamedLinearTest, TwoStreamsAtOnce) {
  constexpr int64_t kRows = 128;
  constexpr int64_t kOut = 4096;
  constexpr int64_t kIn = 4096;
  const std::unique_ptr<LinearWeight> weight = RandomWeight(kOut, kIn, 1);
  const std::unique_ptr<Stream> other = device().CreateStream(StreamKind::kCompute, "other");
  runner().PrepareWorkspace(AsCudaStream(*other));
  CudaMatrix x(device(), DType::kBF16, kRows, kIn);
  x.Fill(random());
  for (const StreamedLinear kernel : {StreamedLinear::k128, StreamedLinear::k128Pairs}) {
    CudaMatrix y(device(), DType::kF32, kRows, kOut);
    CudaMatrix other_y(device(), DType::kF32, kRows, kOut);
    ASSERT_TRUE(runner().Run(cuda_stream(), Args(x, weight.get(), y), AlgorithmOf(kernel)));
    stream().Synchronize();
    const std::vector<float> want = ValuesOf(y);
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(runner().Run(cuda_stream(), Args(x, weight.get(), y), AlgorithmOf(kernel)));
      ASSERT_TRUE(runner().Run(AsCudaStream(*other), Args(x, weight.get(), other_y), AlgorithmOf(kernel)));
    }
    stream().Synchronize();
    other->Synchronize();
    EXPECT_EQ(Difference(ValuesOf(y), want, kOut), "") << StreamedLinearName(kernel);
    EXPECT_EQ(Difference(ValuesOf(other_y), want, kOut), "") << StreamedLinearName(kernel);
  }
}

// What the file says is used, and computes what it should.
TEST_F(CudaStreamedLinearTest, ChoicesInTheFileAreRun) {
  const TemporaryFolder folder("streamed-tuning");
  const CudaOpsOptions options = {.tuning_folder = folder.path(), .tune_linear = true};
  std::unique_ptr<Ops> tuned = CreateCudaOps(&device(), options);
  Product p = {.out = 1024, .in = 512};
  const Weight weight = MakeWeight(*tuned, p);
  const std::vector<const LinearWeight*> pointers = {weight.weight.get()};
  const std::vector<int64_t> counts = {16, 64, 128, 256};
  tuned->TuneLinear(stream(), {pointers, p.y_dtype, counts});
  ASSERT_EQ(folder.files().size(), 1U);
  const nlohmann::json content = nlohmann::json::parse(std::ifstream(folder.files()[0]));
  for (const StreamedLinear kernel : kStreamedLinears) {
    nlohmann::json forced = content;
    for (nlohmann::json& entry : forced["shapes"][0]["rows"]) {
      if (entry["rows"].get<int64_t>() > MaxRowsOf(kernel)) continue;
      entry = {{"rows", entry["rows"]},
               {"us", 12345.0},
               {"method", "streamed"},
               {"kernel", StreamedLinearName(kernel)}};
    }
    std::ofstream(folder.files()[0], std::ios::trunc) << forced.dump();
    tuned = CreateCudaOps(&device(), options);
    tuned->TuneLinear(stream(), {pointers, p.y_dtype, counts});
    for (const int64_t rows : {9, 16, 60, 100, 256, 300}) {
      p.rows = rows;
      ExpectLinear(*tuned, p, weight);
    }
    // Nothing was measured anew.
    EXPECT_EQ(nlohmann::json::parse(std::ifstream(folder.files()[0])), forced);
  }
}

}  // namespace
}  // namespace tandem
