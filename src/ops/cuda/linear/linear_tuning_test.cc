#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ops/cuda/linear/linear_test_bench.h"

namespace tandem {
namespace {

using CudaLinearTuningTest = CudaLinearTest;

TEST_F(CudaLinearTuningTest, KeepsResultsAndItsFile) {
  const DType dtype = HasDType(DType::kBF16) ? DType::kBF16 : DType::kF16;
  const TemporaryFolder folder("linear-tuning");
  // More rows than the skinny kernel takes without a measurement.
  const std::vector<int64_t> counts = {9, 12, 16, 64, 100};
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
  nlohmann::json bad_kernel = content;
  bad_kernel["shapes"][0]["rows"][0]["method"] = "streamed";
  bad_kernel["shapes"][0]["rows"][0]["kernel"] = "another";
  for (const std::string& text :
       {std::string(), std::string("not json"), good.substr(0, good.size() / 2), foreign.dump(),
        bad_algorithm.dump(), bad_kernel.dump(), std::string("[1, 2]")}) {
    std::ofstream(file, std::ios::trunc) << text;
    const std::unique_ptr<Ops> ops = CreateCudaOps(&device(), options);
    const std::vector<int64_t> one = {20};
    ops->TuneLinear(stream(), {pointers, dtype, one});
    p.rows = 20;
    ExpectLinear(*ops, p, weights[0]);
    const nlohmann::json written = nlohmann::json::parse(std::ifstream(file));
    ASSERT_EQ(written["shapes"].size(), 1U) << text.substr(0, 40);
    EXPECT_EQ(written["shapes"][0]["rows"].size(), 1U) << text.substr(0, 40);
  }
}

TEST_F(CudaLinearTuningTest, WithBiasAndFp32Results) {
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
