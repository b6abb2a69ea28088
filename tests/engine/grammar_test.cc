// Answers that follow a grammar: the same under every strategy, in both tiers, with all that sampling can do.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "request/grammar_testing.h"

namespace tandem {
namespace {

using testing::StrideGrammar;

constexpr int kNumAnswers = 24;

struct Case {
  std::string device;
  std::string strategy;
};

class GrammarEngineTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().device == "cuda" && !DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU";
    EngineOptions options;
    options.device = GetParam().device;
    options.model = FixturePath("families/llama2/model.gguf");
    options.strategy = GetParam().strategy;
    options.dtype = DType::kF32;
    options.cpu_threads = 2;
    options.show_progress = false;
    options.cpu_trial = false;
    options.cache_folder =
        std::filesystem::temp_directory_path() / ("tandem-grammar-" + std::to_string(getpid()));
    options.gpu_kv_cache = SizeInTokens(512);  // preemptions, and work for the other tier
    options.cpu_kv_cache = SizeInTokens(GetParam().strategy == "gpu-only" ? 0 : 4096);
    options.max_model_len = 200;
    options.max_num_batched_tokens = 64;
    auto created = Engine::Create(options);
    ASSERT_TRUE(created.ok()) << created.error().message;
    engine_ = std::move(*created);
    end_token_ = engine_->generation_defaults().eos_token_ids.at(0);
  }

  // Lengths differ; every third is greedy, every fourth has penalties and a ban that the grammar outlives.
  RequestSpec SpecOf(int index, StrideGrammar::Options* grammar) const {
    grammar->stride = 3 + index % 5;
    grammar->length = 5 + index % 17;
    grammar->end_token = end_token_;
    RequestSpec spec;
    for (int i = 0; i < 10 + index * 5; ++i) spec.prompt_tokens.push_back((index * 31 + i * 7) % 320);
    spec.sampling.max_tokens = 60;
    spec.sampling.temperature = index % 3 == 0 ? 0.0F : 1.0F;
    spec.sampling.seed = static_cast<uint64_t>(index);
    spec.sampling.num_top_logprobs = index % 2 == 0 ? 2 : -1;
    if (index % 4 == 0) {
      spec.sampling.presence_penalty = 1.0F;
      spec.sampling.repetition_penalty = 1.3F;
      spec.sampling.min_tokens = 40;  // longer than the grammar lets it be
      spec.sampling.ignore_eos = true;
    }
    spec.grammar = std::make_shared<StrideGrammar>(*grammar);
    return spec;
  }

  void ExpectAllFree() const {
    const EngineStats stats = engine_->Stats();
    EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total);
    EXPECT_EQ(stats.cpu_blocks_free, stats.cpu_blocks_total);
    EXPECT_EQ(stats.num_running, 0);
  }

  std::unique_ptr<Engine> engine_;
  int32_t end_token_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, GrammarEngineTest,
                         ::testing::Values(Case{"host", "gpu-only"}, Case{"host", "full-offload"},
                                           Case{"host", "asymmetric"}, Case{"host", "async"},
                                           Case{"host", "auto"}, Case{"cuda", "gpu-only"},
                                           Case{"cuda", "full-offload"}, Case{"cuda", "async"},
                                           Case{"cuda", "auto"}),
                         [](const auto& test) {
                           std::string name = test.param.device + "_" + test.param.strategy;
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

TEST_P(GrammarEngineTest, EveryAnswerFollowsItsGrammarToItsEnd) {
  std::vector<StrideGrammar::Options> grammars(kNumAnswers);
  std::vector<Submitted> answers;
  for (int i = 0; i < kNumAnswers; ++i) {
    answers.push_back(SubmitTo(*engine_, SpecOf(i, &grammars[static_cast<size_t>(i)])));
    // One that is free beside each.
    RequestSpec free;
    free.prompt_tokens = {1, 2, 3 + i};
    free.sampling.max_tokens = 20;
    free.sampling.temperature = 1.0F;
    SubmitTo(*engine_, std::move(free));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].output->Wait(), FinishReason::kStop);
    const std::vector<int32_t> tokens = answers[i].output->TokenIds();
    ASSERT_EQ(static_cast<int64_t>(tokens.size()), grammars[i].length + 1) << i;
    for (size_t t = 0; t < tokens.size(); ++t)
      EXPECT_TRUE(StrideGrammar::Has(grammars[i], static_cast<int64_t>(t), tokens[t])) << i << ' ' << t;
  }
  engine_->Drain();
  ExpectAllFree();
}

TEST_P(GrammarEngineTest, TokensAreThoseOfTheAnswerAlone) {
  std::vector<StrideGrammar::Options> grammars(kNumAnswers);
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < kNumAnswers; i += 5) {
    const Submitted answer = SubmitTo(*engine_, SpecOf(i, &grammars[static_cast<size_t>(i)]));
    answer.output->Wait();
    alone.push_back(answer.output->TokenIds());
  }
  std::vector<Submitted> together;
  for (int i = 0; i < kNumAnswers; ++i)
    together.push_back(SubmitTo(*engine_, SpecOf(i, &grammars[static_cast<size_t>(i)])));
  for (const Submitted& answer : together) answer.output->Wait();
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[5 * i].output->TokenIds(), alone[i]);
}

TEST_P(GrammarEngineTest, AnswersAreCancelledAmidTheirGrammar) {
  std::vector<Submitted> answers;
  StrideGrammar::Options grammar{.stride = 2, .length = 150, .end_token = end_token_};
  for (int i = 0; i < kNumAnswers; ++i) {
    RequestSpec spec;
    spec.prompt_tokens = {1, 2, 3};
    spec.sampling.max_tokens = 190;
    spec.grammar = std::make_shared<StrideGrammar>(grammar);
    answers.push_back(SubmitTo(*engine_, std::move(spec)));
  }
  for (size_t i = 0; i < answers.size(); i += 2) {
    answers[i].output->WaitForTokens(i);
    engine_->Cancel(answers[i].id);
  }
  for (const Submitted& answer : answers) answer.output->Wait();
  engine_->Drain();
  ExpectAllFree();
}

TEST_P(GrammarEngineTest, AGrammarThatRefusesItsOwnMaskEndsTheAnswerWithAnError) {
  RequestSpec spec;
  spec.prompt_tokens = {1, 2, 3};
  spec.sampling.max_tokens = 50;
  spec.grammar = std::make_shared<StrideGrammar>(
      StrideGrammar::Options{.length = 20, .end_token = end_token_, .refused_index = 4});
  const Submitted answer = SubmitTo(*engine_, std::move(spec));
  EXPECT_EQ(answer.output->Wait(), FinishReason::kError);
  EXPECT_EQ(answer.output->TokenIds().size(), 5U);
  EXPECT_NE(answer.output->error_message().find("grammar"), std::string::npos);
  ExpectAllFree();
}

// More masks than a buffer of them holds, each as large as a real vocabulary's.
TEST(GrammarEngineCudaTest, MasksOfManyRowsAndARealVocabulary) {
  if (!DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU";
  constexpr int kNumRows = 100;
  EngineOptions options;
  options.device = "cuda";
  options.dummy = "smollm2-135m";
  options.strategy = "gpu-only";
  options.show_progress = false;
  options.cpu_trial = false;
  options.gpu_kv_cache = SizeInTokens(16384);
  options.max_model_len = 512;
  auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const StrideGrammar::Options grammar{.stride = 7, .length = 40, .end_token = 0};
  std::vector<Submitted> answers;
  for (int i = 0; i < kNumRows; ++i) {
    RequestSpec spec;
    spec.prompt_tokens = {1, 2, 3 + i};
    spec.sampling.max_tokens = 30;
    spec.sampling.temperature = 1.0F;
    spec.grammar = std::make_shared<StrideGrammar>(grammar);
    answers.push_back(SubmitTo(**engine, std::move(spec)));
  }
  for (const Submitted& answer : answers) {
    EXPECT_EQ(answer.output->Wait(), FinishReason::kLength);
    const std::vector<int32_t> tokens = answer.output->TokenIds();
    for (size_t t = 0; t < tokens.size(); ++t)
      EXPECT_TRUE(StrideGrammar::Has(grammar, static_cast<int64_t>(t), tokens[t])) << t;
  }
}

TEST_P(GrammarEngineTest, AListOfAllowedTokensExcludesAGrammar) {
  RequestSpec spec;
  spec.prompt_tokens = {1};
  spec.sampling.allowed_token_ids = {1, 2};
  spec.grammar = std::make_shared<StrideGrammar>(StrideGrammar::Options{});
  const auto id = engine_->Submit(std::move(spec), [](const RequestOutput&) {});
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().message, "allowed_token_ids excludes a grammar for the answer");
}

}  // namespace
}  // namespace tandem
