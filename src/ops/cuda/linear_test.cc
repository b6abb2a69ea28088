#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/hashed_uniform.h"
#include "ops/cuda/cuda_linear_weight.h"
#include "ops/cuda/cuda_op_test_bench.h"
#include "ops/cuda/linear_kernels.h"
#include "ops/cuda/linear_runner.h"
#include "ops/cuda/skinny_linear.h"

namespace tandem {
namespace {

struct Product {
  int64_t rows = 0;
  int64_t out = 0;
  int64_t in = 0;
  DType dtype = DType::kBF16;
  DType y_dtype = DType::kBF16;
  bool bias = false;
  int64_t x_gap = 0;
  int64_t y_gap = 0;
};

std::string Name(const Product& p) {
  return fmt::format("{} rows, weight [{}, {}] {}, y {}, bias {}, gaps {} and {}", p.rows, p.out, p.in,
                     DTypeName(p.dtype), DTypeName(p.y_dtype), p.bias, p.x_gap, p.y_gap);
}

double Precision(DType dtype) {
  if (dtype == DType::kF32) return 1e-6;
  return dtype == DType::kBF16 ? 1.0 / 256 : 1.0 / 2048;
}

class CudaLinearTest : public CudaOpTest {
 protected:
  struct Weight {
    std::unique_ptr<LinearWeight> weight;
    std::vector<float> values;  // as rounded
    std::vector<float> bias;    // empty if none
  };

  static std::vector<std::byte> Encode(DType dtype, std::vector<float>* values) {
    std::vector<std::byte> bytes(values->size() * DTypeSize(dtype));
    for (size_t i = 0; i < values->size(); ++i) {
      float& value = (*values)[i];
      if (dtype == DType::kF32) {
        std::memcpy(bytes.data() + i * 4, &value, 4);
        continue;
      }
      const uint16_t bits = dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
      std::memcpy(bytes.data() + i * 2, &bits, 2);
      value = dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
    }
    return bytes;
  }

  Weight MakeWeight(Ops& ops, const Product& p) {
    Weight made;
    std::normal_distribution<float> normal;
    made.values.resize(static_cast<size_t>(p.out * p.in));
    for (float& value : made.values) value = normal(random());
    const std::vector<std::byte> bytes = Encode(p.dtype, &made.values);
    made.weight = ops.CreateLinearWeight(p.out, p.in, p.dtype).value();
    // In two pieces, as checkpoints are split.
    const int64_t first = p.out / 3;
    made.weight->LoadRows(0, first, bytes.data());
    made.weight->LoadRows(first, p.out - first,
                          bytes.data() + static_cast<size_t>(first * p.in) * DTypeSize(p.dtype));
    if (p.bias) {
      made.bias.resize(static_cast<size_t>(p.out));
      for (float& value : made.bias) value = normal(random());
      made.weight->LoadBias(first, p.out - first, made.bias.data() + first);
      made.weight->LoadBias(0, first, made.bias.data());
    }
    return made;
  }

  // One message for the worst element.
  static void ExpectProduct(const Product& p, const CudaMatrix& x, const Weight& weight,
                            const CudaMatrix& y) {
    double worst = 0.0;
    std::string message;
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t o = 0; o < p.out; ++o) {
        const float* x_row = x.Row(r);
        const float* w_row = weight.values.data() + o * p.in;
        double want = 0.0;
        double magnitude = 0.0;
        for (int64_t k = 0; k < p.in; ++k) {
          const double term = double{x_row[k]} * double{w_row[k]};
          want += term;
          magnitude += std::abs(term);
        }
        const double bias = weight.bias.empty() ? 0.0 : double{weight.bias[static_cast<size_t>(o)]};
        want += bias;
        const double allowed =
            Precision(p.y_dtype) * (std::abs(want) + std::abs(bias)) + 1e-5 * magnitude + 1e-6;
        const double got = y.At(r, o);
        const double excess = std::isfinite(got) ? std::abs(got - want) / allowed : 1e30;
        if (excess <= worst) continue;
        worst = excess;
        message = fmt::format("row {} column {}: got {}, want {}, allowed {}", r, o, got, want, allowed);
      }
    }
    EXPECT_LE(worst, 1.0) << Name(p) << ": " << message;
  }

  void ExpectLinear(Ops& ops, const Product& p, const Weight& weight) {
    CudaMatrix x(device(), p.dtype, p.rows, p.in, p.x_gap);
    x.Fill(random());
    CudaMatrix y(device(), p.y_dtype, p.rows, p.out, p.y_gap);
    ops.Linear(stream(), {x.view(), weight.weight.get(), y.view()});
    stream().Synchronize();
    ExpectProduct(p, x, weight, y.Download());
  }

  CudaStream& cuda_stream() { return AsCudaStream(stream()); }
  bool HasDType(DType dtype) {
    return dtype != DType::kBF16 || cuda_stream().target().compute_capability >= 80;
  }

  // A folder that is gone after the test.
  class Folder {
   public:
    explicit Folder(const std::string& name)
        : path_(std::filesystem::temp_directory_path() / fmt::format("tandem-{}-{}", name, getpid())) {
      std::filesystem::remove_all(path_);
    }
    ~Folder() {
      std::error_code error;
      std::filesystem::remove_all(path_, error);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string path() const { return path_.string(); }
    std::vector<std::filesystem::path> files() const {
      std::vector<std::filesystem::path> files;
      for (const auto& entry : std::filesystem::directory_iterator(path_)) files.push_back(entry.path());
      return files;
    }

   private:
    std::filesystem::path path_;
  };
};

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
          std::vector<float> of_first_variant;
          for (int variant = 0; variant < kNumSkinnyVariants; ++variant) {
            CudaMatrix y(device(), p.y_dtype, rows, out, p.y_gap);
            LaunchSkinnyLinear(cuda_stream(), x.view(), cuda_weight.view(),
                               bias ? static_cast<const float*>(cuda_weight.bias(DType::kF32)) : nullptr,
                               y.view(), variant);
            stream().Synchronize();
            y.Download();
            const std::vector<float> values(y.Row(0), y.Row(0) + rows * out);
            if (variant == 0) {
              ExpectProduct(p, x, weight, y);
              of_first_variant = values;
              continue;
            }
            const auto [got, want] = std::mismatch(values.begin(), values.end(), of_first_variant.begin());
            if (got == values.end()) continue;
            const int64_t at = got - values.begin();
            ADD_FAILURE() << Name(p) << ": variant " << variant << " at row " << at / out << " column "
                          << at % out << ": " << *got << ", variant 0: " << *want;
          }
        }
      }
    }
  }
}

TEST_F(CudaLinearTest, SkinnyRowsDoNotDependOnEachOther) {
  if (!HasDType(DType::kBF16)) GTEST_SKIP() << "no bf16";
  const Product p = {.out = 100, .in = 1096};
  const Weight weight = MakeWeight(ops(), p);
  const CudaLinearWeight& cuda_weight = AsCudaLinearWeight(weight.weight.get());
  CudaMatrix x(device(), p.dtype, kMaxSkinnyRows, p.in);
  x.Fill(random());
  CudaMatrix all(device(), DType::kF32, kMaxSkinnyRows, p.out);
  LaunchSkinnyLinear(cuda_stream(), x.view(), cuda_weight.view(), nullptr, all.view(), 0);
  CudaMatrix single(device(), DType::kF32, kMaxSkinnyRows, p.out);
  for (int64_t r = 0; r < kMaxSkinnyRows; ++r) {
    LaunchSkinnyLinear(cuda_stream(), x.view().Rows(r, 1), cuda_weight.view(), nullptr,
                       single.view().Rows(r, 1), static_cast<int>(r % kNumSkinnyVariants));
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
  if (!HasDType(DType::kBF16)) GTEST_SKIP() << "no bf16";
  constexpr int64_t kFeatures = 2048;
  constexpr int kLayers = 12;
  constexpr int kRounds = 40;
  constexpr int64_t kRows = 5;
  std::vector<std::unique_ptr<LinearWeight>> weights;
  for (int layer = 0; layer < kLayers; ++layer) {
    weights.push_back(ops().CreateLinearWeight(kFeatures, kFeatures, DType::kBF16).value());
    // Values keep their size from layer to layer.
    weights.back()->FillRandom(static_cast<uint64_t>(layer), std::sqrt(3.0F / kFeatures));
  }
  // Two buffers in turn: a product that writes early destroys what its predecessor still reads.
  CudaMatrix ping(device(), DType::kBF16, kRows, kFeatures);
  CudaMatrix pong(device(), DType::kBF16, kRows, kFeatures);
  const auto enqueue = [&](int layer) {
    const MatrixView from = layer % 2 == 0 ? ping.view() : pong.view();
    const MatrixView to = layer % 2 == 0 ? pong.view() : ping.view();
    LaunchSkinnyLinear(cuda_stream(), from,
                       AsCudaLinearWeight(weights[static_cast<size_t>(layer)].get()).view(), nullptr, to,
                       layer % kNumSkinnyVariants);
  };
  enqueue(0);
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
  const DType dtype = HasDType(DType::kBF16) ? DType::kBF16 : DType::kF16;
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
  weight->FillRandom(5, kBound);
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

TEST_F(CudaLinearTest, TuningKeepsResultsAndItsFile) {
  const DType dtype = HasDType(DType::kBF16) ? DType::kBF16 : DType::kF16;
  const Folder folder("linear-tuning");
  const std::vector<int64_t> counts = {1, 3, 8, 64, 100};
  Product p = {.out = 1024, .in = 512, .dtype = dtype, .y_dtype = dtype};
  std::vector<Weight> weights;
  std::vector<const LinearWeight*> pointers;
  const CudaOpsOptions options = {.tuning_folder = folder.path(), .tune_linear = true};
  const auto expect_all_rows = [&](Ops& ops) {
    for (const int64_t rows : {1, 2, 3, 5, 8, 16, 64, 70, 100, 150, 300}) {
      p.rows = rows;
      ExpectLinear(ops, p, weights[static_cast<size_t>(rows) % weights.size()]);
    }
  };
  {
    const std::unique_ptr<Ops> ops = CreateCudaOps(&device(), options);
    for (int i = 0; i < 3; ++i) weights.push_back(MakeWeight(*ops, p));
    for (const Weight& weight : weights) pointers.push_back(weight.weight.get());
    ops->TuneLinear(stream(), {pointers, dtype, counts});
    expect_all_rows(*ops);
  }
  ASSERT_EQ(folder.files().size(), 1U);
  const std::filesystem::path file = folder.files()[0];
  nlohmann::json content = nlohmann::json::parse(std::ifstream(file));
  ASSERT_EQ(content["shapes"].size(), 1U);
  nlohmann::json& entries = content["shapes"][0]["rows"];
  ASSERT_EQ(entries.size(), counts.size());
  // A mark that a second measurement would wipe out.
  for (nlohmann::json& entry : entries) entry["us"] = 12345.0;
  std::ofstream(file) << content.dump();
  {
    const std::unique_ptr<Ops> ops = CreateCudaOps(&device(), options);
    std::vector<int64_t> more = counts;
    more.push_back(128);
    ops->TuneLinear(stream(), {pointers, dtype, more});
    expect_all_rows(*ops);
  }
  content = nlohmann::json::parse(std::ifstream(file));
  const nlohmann::json& kept = content["shapes"][0]["rows"];
  ASSERT_EQ(kept.size(), counts.size() + 1);
  for (const nlohmann::json& entry : kept) {
    EXPECT_EQ(entry["us"].get<double>() == 12345.0, entry["rows"].get<int64_t>() != 128) << entry.dump();
  }
  // Damaged in several ways: ignored, and written anew.
  const std::string good = content.dump();
  nlohmann::json foreign = content;
  foreign["gpu"] = "another";
  nlohmann::json bad_algorithm = content;
  for (nlohmann::json& entry : bad_algorithm["shapes"][0]["rows"]) {
    entry["method"] = "cublaslt";
    entry["separate_bias"] = false;
    entry["algorithm"] = "0123";
  }
  for (const std::string& text : {std::string(), std::string("not json"), good.substr(0, good.size() / 2),
                                  foreign.dump(), bad_algorithm.dump(), std::string("[1, 2]")}) {
    std::ofstream(file, std::ios::trunc) << text;
    const std::unique_ptr<Ops> ops = CreateCudaOps(&device(), options);
    const std::vector<int64_t> one = {4};
    ops->TuneLinear(stream(), {pointers, dtype, one});
    p.rows = 4;
    ExpectLinear(*ops, p, weights[0]);
    const nlohmann::json written = nlohmann::json::parse(std::ifstream(file));
    ASSERT_EQ(written["shapes"].size(), 1U) << text.substr(0, 40);
    EXPECT_EQ(written["shapes"][0]["rows"].size(), 1U) << text.substr(0, 40);
  }
}

TEST_F(CudaLinearTest, TuningWithBiasAndFp32Results) {
  const DType dtype = HasDType(DType::kBF16) ? DType::kBF16 : DType::kF16;
  const std::unique_ptr<Ops> ops = CreateCudaOps(&device(), {.tuning_folder = "", .tune_linear = true});
  for (const bool bias : {false, true}) {
    Product p = {.out = 1000, .in = 328, .dtype = dtype, .y_dtype = DType::kF32, .bias = bias};
    const Weight weight = MakeWeight(*ops, p);
    const std::vector<const LinearWeight*> weights = {weight.weight.get()};
    const std::vector<int64_t> counts = {1, 2, 16, 32, 300};
    ops->TuneLinear(stream(), {weights, DType::kF32, counts});
    for (const int64_t rows : {1, 2, 9, 16, 20, 32, 290, 300}) {
      p.rows = rows;
      ExpectLinear(*ops, p, weight);
    }
  }
}

}  // namespace
}  // namespace tandem
