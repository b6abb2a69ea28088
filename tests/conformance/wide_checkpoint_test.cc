// Checkpoints 1,024 wide, quantized in every form: logits of weights that are kept as codes against those of
// transformers on the dequantized weights (tests/fixtures/quantized/make_wide_fixtures.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <string>
#include <vector>

#include "base/sanitizers.h"
#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "conformance/wide_checkpoints.h"
#include "load/files_testing.h"

namespace tandem {
namespace {

class WideCheckpointTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (kSanitized && GetParam() != "Q4_K with V and down in Q6_K" && GetParam() != "AWQ of 128")
      GTEST_SKIP() << "one of each container will do";
    const nlohmann::json fixture = ReadJson(FixturePath("quantized/wide_logits.json"));
    prompts_ = fixture.at("prompts").get<std::vector<std::vector<int32_t>>>();
    vocab_size_ = fixture.at("vocab_size").get<size_t>();
    const auto names = fixture.at("checkpoints").get<std::vector<std::string>>();
    index_ = static_cast<size_t>(std::ranges::find(names, GetParam()) - names.begin());
    ASSERT_LT(index_, names.size()) << "no logits of " << GetParam();
    path_ = WriteWideCheckpoint(GetParam(), folder_.path());
  }

  // Of every prompt: how far the logits are from those of transformers.
  std::vector<double> Differences(const DecoderHarness::Options& options, bool expect_quantized) {
    DecoderHarness harness(path_, options);
    EXPECT_EQ(harness.weights().layers[1].down->format().is_quantized(), expect_quantized);
    EXPECT_EQ(harness.weights().layers[0].qkv->format().is_quantized(), expect_quantized);
    std::vector<double> differences;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const auto expected = ReadFloats(FixturePath("quantized/wide_logits.bin"),
                                       (index_ * prompts_.size() + i) * vocab_size_, vocab_size_);
      differences.push_back(RelativeDifference(harness.LastLogits(prompts_[i], 512), expected));
    }
    return differences;
  }

  const TemporaryFolder folder_;
  std::string path_;
  std::vector<std::vector<int32_t>> prompts_;
  size_t vocab_size_ = 0;
  size_t index_ = 0;
};

double Worst(const std::vector<double>& values) {
  return *std::ranges::max_element(values);
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// What fp32 costs, with the dequantized weights and with the codes alike.
TEST_P(WideCheckpointTest, Fp32IsWithinTheRoundingOfSums) {
  const std::vector<double> widened = Differences({.quantization = Quantization::kNone}, false);
  const std::vector<double> kept = Differences({}, true);
  std::printf("%s at fp32: kept %.2e, widened %.2e\n", GetParam().c_str(), Worst(kept), Worst(widened));
  EXPECT_LT(Worst(widened), 2e-5);
  EXPECT_LT(Worst(kept), 2e-5);
}

// Products of bf16 rows with codes are as good as those with the dequantized weights rounded to bf16. What
// few prompts come to is chance, so the worst and the mean may be those of bf16 products with SmolLM2 too.
TEST_P(WideCheckpointTest, Bf16IsNoWorseThanWithFloats) {
  constexpr double kWorstOfSmolLm2 = 2.4e-2;
  constexpr double kMeanOfSmolLm2 = 9.7e-3;
  const std::vector<double> widened =
      Differences({.dtype = DType::kBF16, .quantization = Quantization::kNone}, false);
  const std::vector<double> kept = Differences({.dtype = DType::kBF16}, true);
  std::printf("%s at bf16: kept %.2e mean %.2e, widened %.2e mean %.2e\n", GetParam().c_str(), Worst(kept),
              Mean(kept), Worst(widened), Mean(widened));
  EXPECT_LT(Mean(kept), 1.1 * std::max(Mean(widened), kMeanOfSmolLm2));
  EXPECT_LT(Worst(kept), 1.1 * std::max(Worst(widened), kWorstOfSmolLm2));
  EXPECT_LT(Mean(widened), 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Forms, WideCheckpointTest, ::testing::ValuesIn(WideCheckpointNames()),
                         [](const ::testing::TestParamInfo<std::string>& name) {
                           std::string letters = name.param;
                           for (char& c : letters)
                             c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return letters;
                         });

}  // namespace
}  // namespace tandem
