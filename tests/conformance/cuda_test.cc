// The cuda backend against the host backend: the same logits within the rounding of the dtype, the same
// tokens whatever the batch runs as.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"

namespace tandem {
namespace {

constexpr std::array kFamilies = {"llama2",  "llama3", "llama3_1", "mistral",  "qwen2",
                                  "qwen2_5", "qwen3",  "smollm2",  "tinyllama"};

std::vector<int32_t> RandomPrompt(size_t length, int seed, int64_t vocab_size) {
  std::vector<int32_t> prompt(length);
  for (size_t i = 0; i < length; ++i) {
    prompt[i] = static_cast<int32_t>((i * i * 31 + i * 17 + static_cast<size_t>(seed) * 101 + 5) %
                                     static_cast<size_t>(vocab_size));
  }
  return prompt;
}

double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

class CudaConformanceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU that this build can use";
    dtypes_ = DecoderHarness::DTypes("cuda");
    half_ = DecoderHarness::HalfType("cuda");
  }

  bool Computes(DType dtype) const { return std::ranges::find(dtypes_, dtype) != dtypes_.end(); }
  DType half() const { return half_; }

 private:
  std::vector<DType> dtypes_;
  DType half_ = DType::kBF16;
};

struct Case {
  DType dtype;
  double tolerance;  // against fp32 on the host
};

TEST_F(CudaConformanceTest, LogitsOfEveryFamily) {
  for (const char* family : kFamilies) {
    const std::string path = FixturePath(std::string("families/") + family);
    DecoderHarness reference(path, {.dtype = DType::kF32});
    const int64_t vocab = reference.config().vocab_size;
    for (const Case& each : {Case{DType::kF32, 2e-4}, Case{DType::kF16, 6e-3}, Case{DType::kBF16, 4e-2}}) {
      if (!Computes(each.dtype)) continue;
      DecoderHarness cuda(path, {.device = "cuda", .dtype = each.dtype});
      for (const size_t length : {1, 7, 40, 100}) {
        const std::vector<int32_t> prompt = RandomPrompt(length, 3, vocab);
        const std::vector<float> expected = reference.LastLogits(prompt, 512);
        for (const int64_t chunk : {512, 33, 1}) {
          const double difference = RelativeDifference(cuda.LastLogits(prompt, chunk), expected);
          EXPECT_LT(difference, each.tolerance)
              << family << " " << DTypeName(each.dtype) << ", " << length << " tokens in chunks of " << chunk;
        }
      }
    }
  }
}

// 16 bits against bf16: both round, at different places.
TEST_F(CudaConformanceTest, LogitsOfTheRealModel) {
  const char* path = std::getenv("TANDEM_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "TANDEM_TEST_MODEL is not set";
  DecoderHarness reference(path, {.dtype = DType::kF32});
  DecoderHarness host(path, {.dtype = DType::kBF16});
  DecoderHarness cuda(path, {.device = "cuda", .dtype = half()});
  DecoderHarness cuda_fp32(path, {.device = "cuda", .dtype = DType::kF32});
  double worst = 0;
  double sum = 0;
  double host_sum = 0;
  constexpr int kPrompts = 16;
  for (int i = 0; i < kPrompts; ++i) {
    const std::vector<int32_t> prompt =
        RandomPrompt(static_cast<size_t>(8 + 20 * i), i, host.config().vocab_size);
    const std::vector<float> expected = reference.LastLogits(prompt, 512);
    EXPECT_LT(RelativeDifference(cuda_fp32.LastLogits(prompt, 512), expected), 1e-3) << "prompt " << i;
    const double difference = RelativeDifference(cuda.LastLogits(prompt, 512), expected);
    worst = std::max(worst, difference);
    sum += difference;
    host_sum += RelativeDifference(host.LastLogits(prompt, 512), expected);
  }
  std::printf("logits against fp32: cuda %s mean %.2e, worst %.2e; host bf16 mean %.2e\n",
              std::string(DTypeName(half())).c_str(), sum / kPrompts, worst, host_sum / kPrompts);
  EXPECT_LT(worst, 8e-2);
  EXPECT_LT(sum / kPrompts, 3e-2);
}

// Weights that are kept as the file has them, against the same weights widened: no worse on the whole, and no
// prompt much worse than the worst of bf16 products with the unquantized model (2.4e-2). In chunks of which
// each takes another kernel. What sixteen prompts come to varies: kernels that round no weight have made 0.9
// to 1.5 of the widened mean. 9.7e-3 is the model's mean at bf16 with AMX.
TEST_F(CudaConformanceTest, KeptWeightsOfTheRealModelAreAsAccurateAsWidenedOnes) {
  const char* path = std::getenv("TANDEM_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "TANDEM_TEST_MODEL is not set";
  DecoderHarness reference(path, {.dtype = DType::kF32});
  DecoderHarness kept(path, {.device = "cuda", .dtype = half(), .quantization = Quantization::kKeep});
  DecoderHarness widened(path, {.device = "cuda", .dtype = half(), .quantization = Quantization::kNone});
  EXPECT_EQ(kept.weights().Describe(), reference.weights().Describe());
  EXPECT_NE(kept.weights().quantized_embedding, nullptr);
  EXPECT_EQ(widened.weights().Describe(), DTypeName(half()));
  EXPECT_LT(3 * kept.weights().size_bytes, widened.weights().size_bytes);
  for (const int64_t chunk : {512, 100, 50, 20, 12, 1}) {
    double kept_sum = 0;
    double kept_worst = 0;
    double widened_sum = 0;
    constexpr int kPrompts = 16;
    for (int i = 0; i < kPrompts; ++i) {
      const std::vector<int32_t> prompt =
          RandomPrompt(static_cast<size_t>(chunk == 1 ? 8 + i : 8 + 20 * i), i, kept.config().vocab_size);
      const std::vector<float> expected = reference.LastLogits(prompt, 512);
      const double difference = RelativeDifference(kept.LastLogits(prompt, chunk), expected);
      kept_sum += difference;
      kept_worst = std::max(kept_worst, difference);
      widened_sum += RelativeDifference(widened.LastLogits(prompt, chunk), expected);
    }
    std::printf(
        "logits of 16 bits against fp32, chunks of %d: kept mean %.2e, worst %.2e; widened mean %.2e\n",
        static_cast<int>(chunk), kept_sum / kPrompts, kept_worst, widened_sum / kPrompts);
    EXPECT_LT(kept_worst, 1.1 * 2.4e-2) << "chunks of " << chunk;
    EXPECT_LT(kept_sum, std::max(1.1 * widened_sum, kPrompts * 9.7e-3)) << "chunks of " << chunk;
  }
}

// Biases, norms and shapes of families, with weights of floats quantized while loading: against the host,
// whose codes are the same.
TEST_F(CudaConformanceTest, QuantizedFamiliesGiveTheLogitsOfTheHost) {
  for (const char* family : {"llama3", "qwen2", "qwen3", "mistral"}) {
    const std::string path = FixturePath(std::string("families/") + family);
    for (const Quantization quantization : {Quantization::kInt4, Quantization::kInt8, Quantization::kFp8}) {
      // Before compute capability 8.0 floats are not quantized to FP8.
      if (quantization == Quantization::kFp8 && !Computes(DType::kBF16)) continue;
      DecoderHarness host(path, {.dtype = DType::kBF16, .quantization = quantization});
      DecoderHarness cuda(path, {.device = "cuda", .dtype = half(), .quantization = quantization});
      EXPECT_EQ(cuda.weights().Describe(), host.weights().Describe());
      for (const size_t length : {1, 7, 40, 100}) {
        const std::vector<int32_t> prompt = RandomPrompt(length, 3, host.config().vocab_size);
        // Activations of many rows may be rounded to FP8 here.
        const double tolerance = quantization == Quantization::kFp8 && length > 64 ? 2e-1 : 5e-2;
        EXPECT_LT(RelativeDifference(cuda.LastLogits(prompt, 512), host.LastLogits(prompt, 512)), tolerance)
            << family << " " << QuantizationName(quantization) << ", " << length << " tokens";
      }
    }
  }
}

// Greedy tokens of sequences that decode together.
std::vector<std::vector<int32_t>> Decode(DecoderHarness* harness, int num_sequences, size_t num_tokens) {
  for (int i = 0; i < num_sequences; ++i) {
    const auto id = static_cast<SequenceId>(i);
    harness->AddRequest(id, RandomPrompt(static_cast<size_t>(5 + 9 * i), i, 300));
    harness->Prefill(id);
  }
  while (harness->request(0).output_tokens.size() < num_tokens) {
    IterationPlan plan;
    for (int i = 0; i < num_sequences; ++i)
      plan.main.spans.push_back(harness->NextRow(static_cast<SequenceId>(i)));
    harness->Run(plan);
  }
  std::vector<std::vector<int32_t>> tokens;
  for (int i = 0; i < num_sequences; ++i)
    tokens.push_back(harness->request(static_cast<SequenceId>(i)).output_tokens);
  return tokens;
}

// At fp32 the differences of the sums are far below those of the best two logits.
TEST_F(CudaConformanceTest, GraphsAndSlicesGiveTheTokensOfTheHost) {
  for (const char* family : {"llama3", "qwen3", "mistral"}) {
    const std::string path = FixturePath(std::string("families/") + family);
    DecoderHarness host(path, {});
    const auto expected = Decode(&host, 6, 24);
    for (const int sm_limit : {0, 8, 16, 32}) {
      for (const bool graphs : {false, true}) {
        DecoderHarness cuda(
            path, {.device = "cuda",
                   .sm_limit = sm_limit,
                   .graph_batch_sizes = graphs ? std::vector<int64_t>{4, 8} : std::vector<int64_t>{}});
        EXPECT_EQ(Decode(&cuda, 6, 24), expected)
            << family << ", " << sm_limit << " SMs, " << (graphs ? "graphs" : "op by op");
      }
    }
  }
}

TEST_F(CudaConformanceTest, GraphsGiveTheTokensOfEagerLaunches) {
  const std::string path = FixturePath("families/llama3");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    if (!Computes(dtype)) continue;
    for (const Quantization quantization : {Quantization::kNone, Quantization::kInt4}) {
      DecoderHarness eager(path, {.device = "cuda", .dtype = dtype, .quantization = quantization});
      DecoderHarness graphs(
          path, {.device = "cuda", .dtype = dtype, .quantization = quantization, .graph_batch_sizes = {8}});
      EXPECT_EQ(Decode(&graphs, 8, 24), Decode(&eager, 8, 24))
          << DTypeName(dtype) << ", quantization " << QuantizationName(quantization);
    }
  }
}

}  // namespace
}  // namespace tandem
