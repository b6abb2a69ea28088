// Perplexity of the real model on a fixed text, against transformers at fp32 and llama.cpp on the same files
// (tests/fixtures/quantized/make_perplexity_fixtures.py).

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "base/nightly_testing.h"
#include "base/sanitizers.h"
#include "conformance/fixtures.h"
#include "conformance/requantized_gguf.h"
#include "engine/engine.h"
#include "load/files_testing.h"

namespace tandem {
namespace {

class PerplexityTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "minutes of products, which other tests check";
    const auto path = RealModelPath();
    if (!path) GTEST_SKIP() << "the model file is not here; scripts/fetch_model.sh fetches it";
    model_ = *path;
    if (GetParam() != "Q4_1") {
      model_ = folder_.path() + "/model.gguf";
      WriteRequantizedGguf(*path, GgmlType::kQ4_1, GetParam() == "Q4_0" ? GgmlType::kQ4_0 : GgmlType::kQ8_0,
                           model_);
    }
    fixture_ = ReadJson(FixturePath("quantized/perplexity.json"));
    window_ = fixture_.at("window").get<size_t>();
    const std::string bytes = ReadFileBytes(FixturePath("quantized/perplexity_tokens.bin"));
    tokens_.resize(bytes.size() / sizeof(uint16_t));
    std::memcpy(tokens_.data(), bytes.data(), tokens_.size() * sizeof(uint16_t));
  }

  // Mean negative log likelihood of the second half of each of the first num_windows windows of the text.
  std::vector<double> NegativeLogLikelihoods(DType dtype, size_t num_windows) {
    EngineOptions options;
    options.model = model_;
    options.dtype = dtype;
    options.gpu_kv_cache = CacheSize{.unit = CacheSize::Unit::kTokens, .amount = 4096};
    options.show_progress = false;
    options.cpu_trial = false;
    const auto engine = Engine::Create(options).value();
    std::vector<double> sums(num_windows);
    std::vector<std::promise<void>> finished(num_windows);
    const size_t first = window_ / 2;
    for (size_t i = 0; i < num_windows; ++i) {
      RequestSpec spec;
      const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(i * window_);
      spec.prompt_tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(window_));
      spec.sampling.max_tokens = 1;
      spec.sampling.num_prompt_top_logprobs = 0;
      size_t place = 1;  // nothing is said of the first token
      const auto id = engine->Submit(std::move(spec), [&, i, place](const RequestOutput& output) mutable {
        for (const SampledToken& token : output.prompt_logprobs) {
          if (place++ > first) sums[i] -= token.logprob;
        }
        if (output.finish_reason == FinishReason::kNone) return;
        EXPECT_EQ(place, window_);
        finished[i].set_value();
      });
      EXPECT_TRUE(id.ok());
    }
    for (size_t i = 0; i < num_windows; ++i) {
      finished[i].get_future().wait();
      sums[i] /= static_cast<double>(window_ - first - 1);
    }
    return sums;
  }

  const TemporaryFolder folder_;
  std::string model_;
  nlohmann::json fixture_;
  size_t window_ = 0;
  std::vector<uint16_t> tokens_;
};

double Perplexity(const std::vector<double>& losses, size_t count) {
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += losses[i];
  return std::exp(sum / static_cast<double>(count));
}

// Of weights kept as codes, at what the file is served with by default. TANDEM_NIGHTLY: the whole text;
// otherwise a tenth of it, which transformers alone was asked about.
TEST_P(PerplexityTest, IsThatOfTransformersAndOfLlamaCpp) {
  const bool is_whole = IsNightly();
  const nlohmann::json& file = fixture_.at("files").at(GetParam());
  const auto expected = file.at("transformers_losses").get<std::vector<double>>();
  const size_t num_windows = is_whole ? expected.size() : expected.size() / 10;
  ASSERT_EQ(tokens_.size(), expected.size() * window_);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (dtype == DType::kF32 && !is_whole) continue;
    const std::vector<double> losses = NegativeLogLikelihoods(dtype, num_windows);
    const double ours = Perplexity(losses, num_windows);
    const double of_transformers = Perplexity(expected, num_windows);
    const auto of_llama_cpp = file.at("llama_cpp_perplexity").get<double>();
    std::printf(
        "%s at %s, %d windows: perplexity %.4f, transformers %.4f, llama.cpp on the whole text %.4f\n",
        GetParam().c_str(), std::string(DTypeName(dtype)).c_str(), static_cast<int>(num_windows), ours,
        of_transformers, of_llama_cpp);
    EXPECT_NEAR(ours / of_transformers, 1.0, dtype == DType::kF32 ? 1e-5 : 3e-3);
    if (!is_whole) continue;
    EXPECT_NEAR(ours / of_llama_cpp, 1.0, 5e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PerplexityTest, ::testing::Values("Q4_1", "Q4_0", "Q8_0"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tandem
