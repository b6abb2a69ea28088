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

#include "base/hashed_uniform.h"
#include "device/host/host_device.h"
#include "ops/cuda/linear/fused/fused_gate_up.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/gate_up_test_bench.h"

namespace tandem {
namespace {

TEST(GateUpOrderTest, RowsHaveAPlaceEach) {
  for (const int64_t mlp : {1, 7, 8, 12, 16, 1536}) {
    const GateUpOrder order(mlp);
    std::vector<bool> taken(static_cast<size_t>(2 * mlp));
    for (int64_t row = 0; row < 2 * mlp; ++row) {
      const int64_t place = order.PlaceOf(row);
      ASSERT_TRUE(place >= 0 && place < 2 * mlp && !taken[static_cast<size_t>(place)]) << mlp << ": " << row;
      taken[static_cast<size_t>(place)] = true;
      EXPECT_EQ(order.LogicalRow(place), row) << mlp;
    }
    for (int64_t j = 0; j < mlp; ++j) {
      EXPECT_EQ(order.PlaceOf(mlp + j), order.PlaceOf(j) + order.block()) << mlp << ": " << j;
    }
  }
  EXPECT_EQ(GateUpOrder(16).PlaceOf(9), 17);
  EXPECT_EQ(GateUpOrder(7).PlaceOf(6), 6);
}

TEST(FusedGateUpTest, NamesAreReadBack) {
  for (const FusedGateUp kernel : kFusedGateUps) {
    EXPECT_EQ(FusedGateUpFromName(FusedGateUpName(kernel)), kernel);
  }
  EXPECT_EQ(FusedGateUpFromName("none"), FusedGateUp::kNone);
  EXPECT_EQ(FusedGateUpFromName("other"), std::nullopt);
}

TEST_F(CudaGateUpTest, LoadedRowsLieInOrder) {
  for (const auto& [mlp, in] : {std::pair<int64_t, int64_t>{7, 5}, {8, 64}, {24, 3}, {1536, 576}}) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      const auto weight = ops().CreateGateUpWeight(mlp, in, dtype).value();
      std::vector<float> rows(static_cast<size_t>(2 * mlp * in));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 2039);
      std::vector<float> bias(static_cast<size_t>(2 * mlp));
      for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i % 2047);
      const std::vector<std::byte> bytes = Encode(dtype, &rows);
      // Borders within blocks, at their ends and across the middle.
      const std::vector<int64_t> borders = {0, 1, mlp / 2, mlp - 1, std::min(mlp + 10, 2 * mlp - 1), 2 * mlp};
      for (size_t i = 0; i + 1 < borders.size(); ++i) {
        const int64_t begin = borders[i];
        const int64_t count = borders[i + 1] - begin;
        if (count <= 0) continue;
        weight->LoadRows(begin, count, bytes.data() + static_cast<size_t>(begin * in) * DTypeSize(dtype));
        weight->LoadBias(begin, count, bias.data() + begin);
      }
      const std::vector<float> got = Values(*weight);
      const std::vector<float> got_bias =
          Download(AsCudaLinearWeight(weight.get()).bias(dtype), dtype, 2 * mlp);
      const GateUpOrder order(mlp);
      for (int64_t row = 0; row < 2 * mlp; ++row) {
        const int64_t place = order.PlaceOf(row);
        EXPECT_EQ(got_bias[static_cast<size_t>(place)], bias[static_cast<size_t>(row)]) << mlp << ": " << row;
        for (int64_t k = 0; k < in; ++k) {
          ASSERT_EQ(got[static_cast<size_t>(place * in + k)], rows[static_cast<size_t>(row * in + k)])
              << "mlp " << mlp << " row " << row << " column " << k;
        }
      }
    }
  }
}

TEST_F(CudaGateUpTest, RandomRowsAreThoseOfAnyOtherWeight) {
  for (const auto& [mlp, in] : {std::pair<int64_t, int64_t>{7, 5}, {40, 33}, {1536, 576}}) {
    const auto weight = ops().CreateGateUpWeight(mlp, in, DType::kF32).value();
    weight->FillRandom({/*seed=*/3, 0.5F});
    const std::vector<float> got = Values(*weight);
    const GateUpOrder order(mlp);
    for (int64_t row = 0; row < 2 * mlp; ++row) {
      for (int64_t k = 0; k < in; ++k) {
        ASSERT_EQ(got[static_cast<size_t>(order.PlaceOf(row) * in + k)],
                  HashedUniform(3, static_cast<uint64_t>(row * in + k), 0.5F))
            << "mlp " << mlp << " row " << row << " column " << k;
      }
    }
  }
}

// A shard's: some rows of gate, the same of up, some columns.
TEST_F(CudaGateUpTest, RandomRowsOfAPartAreThoseOfTheWhole) {
  constexpr int64_t kWholeMlp = 96;
  constexpr int64_t kWholeColumns = 50;
  for (const auto& [begin, mlp] : {std::pair<int64_t, int64_t>{64, 32}, {10, 7}, {0, kWholeMlp}}) {
    const MatrixCut part = {
        .rows = {{begin, mlp}, {kWholeMlp + begin, mlp}}, .columns = {17, 33}, .num_columns = kWholeColumns};
    const auto weight = ops().CreateGateUpWeight(mlp, part.columns.count, DType::kF32).value();
    weight->FillRandom({/*seed=*/3, 0.5F, &part});
    const std::vector<float> got = Values(*weight);
    const GateUpOrder order(mlp);
    for (int64_t row = 0; row < 2 * mlp; ++row) {
      const int64_t whole_row = row < mlp ? begin + row : kWholeMlp + begin + row - mlp;
      for (int64_t k = 0; k < part.columns.count; ++k) {
        const int64_t index = whole_row * kWholeColumns + part.columns.begin + k;
        ASSERT_EQ(got[static_cast<size_t>(order.PlaceOf(row) * part.columns.count + k)],
                  HashedUniform(3, static_cast<uint64_t>(index), 0.5F))
            << "mlp " << mlp << " row " << row << " column " << k;
      }
    }
  }
}

TEST_F(CudaGateUpTest, HostBackendGivesTheSame) {
  constexpr int64_t kRows = 5;
  struct Sizes {
    int64_t mlp, in;
  };
  for (const Sizes& sizes : {Sizes{24, 16}, Sizes{20, 12}}) {
    const int64_t mlp = sizes.mlp;
    const int64_t in = sizes.in;
    std::vector<std::vector<float>> results;
    const auto run = [&](Device& on, Ops& with) {
      const std::unique_ptr<Stream> on_stream = on.CreateStream(StreamKind::kCompute, "gate-up");
      const auto weight = with.CreateGateUpWeight(mlp, in, DType::kF32).value();
      weight->FillRandom({/*seed=*/9, 1.0F});
      const auto take = [&](int64_t cols) {
        return on.Allocate(static_cast<size_t>(kRows * cols) * 4, MemoryKind::kDevice, "test").value();
      };
      const Buffer x = take(in);
      const Buffer scratch = take(2 * mlp);
      const Buffer y = take(mlp);
      with.FillRandom(*on_stream, MatrixView::Dense(x.data(), DType::kF32, kRows, in), {4, 1.0F});
      with.GateUp(*on_stream, {MatrixView::Dense(x.data(), DType::kF32, kRows, in), weight.get(),
                               MatrixView::Dense(scratch.data(), DType::kF32, kRows, 2 * mlp),
                               MatrixView::Dense(y.data(), DType::kF32, kRows, mlp)});
      std::vector<float>& values = results.emplace_back(static_cast<size_t>(kRows * mlp));
      on_stream->Copy(values.data(), y.data(), values.size() * sizeof(float));
      on_stream->Synchronize();
    };
    run(device(), ops());
    const std::unique_ptr<Device> host = CreateHostDevice({});
    const std::unique_ptr<Ops> host_ops = CreateHostOps();
    run(*host, *host_ops);
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_NEAR(results[0][i], results[1][i], 1e-4F * (1.0F + std::abs(results[1][i]))) << mlp << ": " << i;
    }
  }
}

TEST_F(CudaGateUpTest, UnfusedMatchesDoublePrecision) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (!HasDType(dtype)) continue;
    for (const bool bias : {false, true}) {
      for (const auto& [mlp, in] : {std::pair<int64_t, int64_t>{37, 29}, {104, 72}, {1536, 576}}) {
        const Weights weights = MakeWeights(ops(), {.mlp = mlp, .in = in, .dtype = dtype, .bias = bias});
        for (const int64_t rows : {1, 5, 70}) {
          Problem problem = MakeProblem(weights, rows, /*x_gap=*/rows % 2 * 8);
          ops().GateUp(stream(),
                       {problem.x.view(), weights.weight.get(), problem.scratch.view(), problem.out()});
          ExpectResult(weights, problem, /*fused=*/false);
        }
      }
    }
  }
}

TEST_F(CudaGateUpTest, FusedMatchesDoublePrecision) {
  if (!CanFuse()) GTEST_SKIP() << "needs compute capability 9.0 and a build with fused products";
  struct Sizes {
    int64_t rows, mlp, in;
  };
  const std::vector<Sizes> sizes = {{1, 8, 8},       {127, 264, 72},   {128, 128, 64},    {129, 1536, 576},
                                    {300, 200, 136}, {513, 1544, 576}, {700, 14336, 4096}};
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const Sizes& size : sizes) {
      const Weights weights = MakeWeights(ops(), {.mlp = size.mlp, .in = size.in, .dtype = dtype});
      for (const FusedGateUp kernel : kFusedGateUps) {
        Problem problem = MakeProblem(weights, size.rows, /*x_gap=*/size.rows % 2 * 8);
        LaunchFusedGateUp(cuda_stream(), kernel, problem.x.view(),
                          AsCudaLinearWeight(weights.weight.get()).view(), problem.out());
        SCOPED_TRACE(FusedGateUpName(kernel));
        ExpectResult(weights, problem, /*fused=*/true);
      }
    }
  }
}

TEST_F(CudaGateUpTest, FusedBitsDependNeitherOnTheWalkNorOnTheSlice) {
  if (!CanFuse()) GTEST_SKIP() << "needs compute capability 9.0 and a build with fused products";
  const Weights weights = MakeWeights(ops(), {.mlp = 1544, .in = 576, .dtype = DType::kBF16});
  const MatrixView weight = AsCudaLinearWeight(weights.weight.get()).view();
  for (const FusedGateUp kernel : kFusedGateUps) {
    Problem problem = MakeProblem(weights, /*rows=*/900);
    const auto result = [&](CudaStream& on, int group_columns) {
      LaunchFusedGateUp(on, kernel, problem.x.view(), weight, problem.out(), group_columns);
      on.Synchronize();
      return Download(problem.y.view().data, DType::kBF16, problem.y.rows() * problem.y.cols());
    };
    const std::vector<float> whole = result(cuda_stream(), kFusedGroupColumns);
    for (const int group_columns : {1, 3, 1000}) {
      EXPECT_TRUE(SameBits(whole, result(cuda_stream(), group_columns)))
          << FusedGateUpName(kernel) << ", groups of " << group_columns;
    }
    for (const int num_sms : {8, 24}) {
      const auto slice = CreateCudaDevice({.sm_limit = num_sms});
      ASSERT_TRUE(slice.ok()) << slice.error().message;
      const std::unique_ptr<Stream> in_slice = (*slice)->CreateStream(StreamKind::kCompute, "slice");
      EXPECT_TRUE(SameBits(whole, result(AsCudaStream(*in_slice), kFusedGroupColumns)))
          << FusedGateUpName(kernel) << ", " << num_sms << " SMs";
    }
  }
}

// What is measured is used, and what the file says is used.
TEST_F(CudaGateUpTest, ChoicesAreKeptAndRun) {
  const DType dtype = HasDType(DType::kBF16) ? DType::kBF16 : DType::kF16;
  const TemporaryFolder folder("gate-up-tuning");
  const CudaOpsOptions options = {.tuning_folder = folder.path(), .tune_linear = true};
  std::unique_ptr<Ops> tuned = CreateCudaOps(&device(), options);
  const Weights weights = MakeWeights(*tuned, {.mlp = 1536, .in = 576, .dtype = dtype});
  const std::vector<const LinearWeight*> pointers = {weights.weight.get()};
  const std::vector<int64_t> counts = {16, 300, 512};
  const auto expect_all_rows = [&] {
    for (const int64_t rows : {1, 16, 257, 300, 512, 600}) {
      Problem problem = MakeProblem(weights, rows);
      tuned->GateUp(stream(),
                    {problem.x.view(), weights.weight.get(), problem.scratch.view(), problem.out()});
      ExpectResult(weights, problem, /*fused=*/false);
    }
  };
  tuned->TuneLinear(stream(), {pointers, dtype, counts});
  expect_all_rows();
  ASSERT_EQ(folder.files().size(), 1U);
  const nlohmann::json content = nlohmann::json::parse(std::ifstream(folder.files()[0]));
  ASSERT_EQ(content["shapes"].size(), 1U);
  EXPECT_TRUE(content["shapes"][0]["gate_up"].get<bool>());
  for (const nlohmann::json& entry : content["shapes"][0]["rows"]) {
    const auto fused = FusedGateUpFromName(entry["fused"].get<std::string>());
    ASSERT_TRUE(fused.has_value()) << entry.dump();
    if (entry["rows"].get<int64_t>() < kMinFusedRows || !CanFuse()) {
      EXPECT_EQ(*fused, FusedGateUp::kNone);
    }
  }
  for (const FusedGateUp kernel : kFusedGateUps) {
    nlohmann::json forced = content;
    for (nlohmann::json& entry : forced["shapes"][0]["rows"]) entry["fused"] = FusedGateUpName(kernel);
    std::ofstream(folder.files()[0], std::ios::trunc) << forced.dump();
    tuned = CreateCudaOps(&device(), options);
    tuned->TuneLinear(stream(), {pointers, dtype, counts});
    expect_all_rows();
  }
}

}  // namespace
}  // namespace tandem
