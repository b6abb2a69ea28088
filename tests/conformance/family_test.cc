// Every model family: a small random-weight checkpoint, as transformers wrote it, gives the logits and greedy
// tokens that transformers computed (tests/fixtures/families/make_family_fixtures.py).

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"

namespace tandem {
namespace {

struct FamilyCase {
  std::string family;
  std::string file;  // empty: the Hugging Face folder
  friend std::ostream& operator<<(std::ostream& out, const FamilyCase& c) {
    return out << c.family << " " << c.file;
  }
};

class FamilyTest : public ::testing::TestWithParam<FamilyCase> {
 protected:
  std::string ModelPath() const {
    const std::string folder = FixturePath("families/" + GetParam().family);
    return GetParam().file.empty() ? folder : folder + "/" + GetParam().file;
  }
  nlohmann::json Oracle() const {
    return ReadJson(FixturePath("families/" + GetParam().family + "/oracle.json"));
  }
};

TEST_P(FamilyTest, LogitsEqualTransformers) {
  const nlohmann::json oracle = Oracle();
  const auto prompt = oracle.at("prompt_token_ids").get<std::vector<int32_t>>();
  const auto expected = oracle.at("last_logits").get<std::vector<float>>();
  DecoderHarness fp32(ModelPath(), {});
  for (const int64_t chunk_size : {512, 7, 1}) {
    EXPECT_LT(RelativeDifference(fp32.LastLogits(prompt, chunk_size), expected), 1e-4)
        << "chunks of " << chunk_size;
  }
  // Chunking changes no bit.
  EXPECT_EQ(fp32.LastLogits(prompt, 512), fp32.LastLogits(prompt, 5));
  DecoderHarness bf16(ModelPath(), {.dtype = DType::kBF16});
  EXPECT_LT(RelativeDifference(bf16.LastLogits(prompt, 512), expected), 2e-2);
}

// Floats quantized while they are loaded (the MLP's rows of 48 in groups of 16): near the floats' logits, and
// those of 8 bits nearer. Files that are quantized already are left as they are.
TEST_P(FamilyTest, QuantizedFloatsAreNearThem) {
  const nlohmann::json oracle = Oracle();
  const auto prompt = oracle.at("prompt_token_ids").get<std::vector<int32_t>>();
  const auto expected = oracle.at("last_logits").get<std::vector<float>>();
  DecoderHarness eight(ModelPath(), {.quantization = Quantization::kInt8});
  DecoderHarness four(ModelPath(), {.quantization = Quantization::kInt4});
  const double of_eight = RelativeDifference(eight.LastLogits(prompt, 512), expected);
  const double of_four = RelativeDifference(four.LastLogits(prompt, 512), expected);
  EXPECT_LT(of_eight, 0.1);
  EXPECT_LT(of_four, 0.6);
  if (eight.weights().Describe() == four.weights().Describe()) return;
  EXPECT_LT(of_eight, of_four / 3);
  EXPECT_EQ(four.LastLogits(prompt, 512), four.LastLogits(prompt, 5));
}

TEST_P(FamilyTest, GreedyTokensEqualTransformers) {
  const nlohmann::json oracle = Oracle();
  const auto expected = oracle.at("greedy_token_ids").get<std::vector<int32_t>>();
  DecoderHarness harness(ModelPath(), {});
  harness.AddRequest(1, oracle.at("prompt_token_ids").get<std::vector<int32_t>>());
  harness.Prefill(1);
  while (harness.request(1).output_tokens.size() < expected.size()) {
    IterationPlan plan;
    plan.main.spans.push_back(harness.NextRow(1));
    harness.Run(plan);
  }
  EXPECT_EQ(harness.request(1).output_tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest,
                         ::testing::Values(FamilyCase{"llama2", ""}, FamilyCase{"llama2", "model.gguf"},
                                           FamilyCase{"llama3", ""}, FamilyCase{"llama3_1", ""},
                                           FamilyCase{"llama3_1", "model.gguf"}, FamilyCase{"smollm2", ""},
                                           FamilyCase{"tinyllama", ""}, FamilyCase{"mistral", ""},
                                           FamilyCase{"qwen2", ""}, FamilyCase{"qwen2", "model.gguf"},
                                           FamilyCase{"qwen2_5", ""}, FamilyCase{"qwen3", ""},
                                           FamilyCase{"qwen3", "model.gguf"}),
                         [](const auto& test) {
                           return test.param.family + (test.param.file.empty() ? "_safetensors" : "_gguf");
                         });

}  // namespace
}  // namespace tandem
