// Embeddings are the same, bit for bit at fp32 on the host backend, whatever the strategy, the size of chunks
// and the company, and whichever tier a text is prefilled to; all blocks are free at the end.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/sanitizers.h"
#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "load/checkpoint.h"

namespace tandem {
namespace {

using Embedding = std::vector<float>;

class EmbeddingTest : public ::testing::Test {
 protected:
  EmbeddingTest()
      : cache_folder_(std::filesystem::temp_directory_path() /
                      ("tandem-embedding-" + std::to_string(getpid()))) {}
  ~EmbeddingTest() override { std::filesystem::remove_all(cache_folder_); }

  EngineOptions Options(const std::string& strategy, int64_t max_num_batched_tokens) const {
    EngineOptions options;
    options.dummy = "tiny";
    options.strategy = strategy;
    options.dtype = DType::kF32;
    options.cpu_threads = 2;
    options.max_model_len = 256;
    options.max_num_batched_tokens = max_num_batched_tokens;
    options.gpu_kv_cache = SizeInTokens(512);
    if (strategy != "gpu-only") options.cpu_kv_cache = SizeInTokens(2048);
    options.show_progress = false;
    options.cpu_trial = false;
    options.cache_folder = cache_folder_;
    options.profile_seconds = 1;
    return options;
  }

 private:
  std::filesystem::path cache_folder_;
};

std::unique_ptr<Engine> Created(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return std::move(engine).value();
}

// What comes back for one text.
class Answer {
 public:
  static std::shared_ptr<Answer> Ask(Engine& engine, RequestSpec spec) {
    auto answer = std::make_shared<Answer>();
    const auto id = engine.Submit(std::move(spec), [answer](RequestOutput output) {
      const std::lock_guard lock(answer->mutex_);
      EXPECT_TRUE(output.tokens.empty());
      EXPECT_EQ(answer->reason_, FinishReason::kNone);
      answer->reason_ = output.finish_reason;
      answer->embedding_ = std::move(output.embedding);
      answer->changed_.notify_all();
    });
    EXPECT_TRUE(id.ok()) << id.error().message;
    answer->id_ = id.value();
    return answer;
  }
  FinishReason Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reason_ != FinishReason::kNone; });
    return reason_;
  }
  Embedding Get() {
    EXPECT_EQ(Wait(), FinishReason::kStop);
    return embedding_;
  }
  RequestId id() const { return id_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  RequestId id_ = 0;
  FinishReason reason_ = FinishReason::kNone;
  Embedding embedding_;
};

RequestSpec Text(int64_t num_tokens, Pooling pooling) {
  RequestSpec spec;
  for (int64_t i = 0; i < num_tokens; ++i)
    spec.prompt_tokens.push_back(static_cast<int32_t>((17 * i + num_tokens) % 250));
  spec.pooling = pooling;
  return spec;
}

RequestSpec Chat(int64_t num_tokens) {
  RequestSpec spec = Text(num_tokens, Pooling::kLast);
  spec.pooling.reset();
  spec.sampling = {.max_tokens = 24, .temperature = 0, .ignore_eos = true};
  return spec;
}

const std::vector<int64_t> kLengths = kSanitized
                                          ? std::vector<int64_t>{1, 17, 33, 64}
                                          : std::vector<int64_t>{1, 2, 15, 16, 17, 33, 64, 65, 130, 256};
using Embeddings = std::map<std::pair<int64_t, Pooling>, Embedding>;

// Of all lengths, each alone or all at once among chats.
Embeddings Embed(const EngineOptions& options, bool in_company) {
  const std::unique_ptr<Engine> engine = Created(options);
  std::vector<Submitted> chats;
  std::map<std::pair<int64_t, Pooling>, std::shared_ptr<Answer>> answers;
  Embeddings embeddings;
  for (const int64_t length : kLengths) {
    if (in_company) chats.push_back(SubmitTo(*engine, Chat(std::min<int64_t>(length, 200))));
    for (const Pooling pooling : {Pooling::kLast, Pooling::kMean, Pooling::kFirst}) {
      const auto answer = Answer::Ask(*engine, Text(length, pooling));
      answers[{length, pooling}] = answer;
      if (!in_company) answer->Wait();
    }
  }
  for (const auto& [key, answer] : answers) embeddings[key] = answer->Get();
  for (const Submitted& chat : chats) EXPECT_EQ(chat.output->Wait(), FinishReason::kLength);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total);
  EXPECT_EQ(stats.cpu_blocks_free, stats.cpu_blocks_total);
  EXPECT_EQ(stats.generation_tokens, 24 * chats.size()) << "embeddings generate none";
  return embeddings;
}

TEST_F(EmbeddingTest, TheSameWhateverChunksStrategyAndCompany) {
  const Embeddings wanted = Embed(Options("gpu-only", 512), false);
  for (const auto& [key, embedding] : wanted) ASSERT_EQ(embedding.size(), 256U);
  const auto of = [&](int64_t length, Pooling pooling) { return wanted.at({length, pooling}); };
  EXPECT_EQ(of(1, Pooling::kLast), of(1, Pooling::kMean));
  EXPECT_EQ(of(1, Pooling::kLast), of(1, Pooling::kFirst));
  EXPECT_NE(of(33, Pooling::kLast), of(33, Pooling::kMean));
  EXPECT_NE(of(33, Pooling::kLast), of(33, Pooling::kFirst));
  EXPECT_NE(of(33, Pooling::kLast), of(64, Pooling::kLast));
  for (const int64_t chunk : {16, 64, 100}) {
    if (kSanitized && chunk != 16) continue;
    EXPECT_EQ(Embed(Options("gpu-only", chunk), false), wanted) << chunk;
  }
  for (const std::string strategy : {"async", "asymmetric", "full-offload", "gpu-only", "simple-offload"}) {
    if (kSanitized && strategy != "async") continue;
    EXPECT_EQ(Embed(Options(strategy, 48), true), wanted) << strategy;
  }
}

// On a GPU sums come in another order, which moves the last digits.
TEST_F(EmbeddingTest, OnAGpuNearlyThoseOfTheHostInBothTiers) {
  if (!DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU";
  const Embeddings wanted = Embed(Options("gpu-only", 512), false);
  for (const char* strategy : {"gpu-only", "asymmetric", "async", "full-offload"}) {
    EngineOptions options = Options(strategy, 48);
    options.device = "cuda";
    const Embeddings found = Embed(options, true);
    for (const auto& [key, embedding] : wanted) {
      ASSERT_EQ(found.at(key).size(), embedding.size());
      for (size_t i = 0; i < embedding.size(); ++i)
        ASSERT_NEAR(found.at(key)[i], embedding[i], 1e-3F) << strategy << ' ' << key.first << ' ' << i;
    }
  }
}

// A hidden state does not depend on what comes behind it: row i of a text is the last row of its beginning.
TEST_F(EmbeddingTest, AMeanIsThatOfTheLastRowsOfAllBeginnings) {
  const auto engine = Created(Options("gpu-only", 16));
  const RequestSpec text = Text(40, Pooling::kMean);
  std::vector<double> sum(256);
  for (size_t length = 1; length <= text.prompt_tokens.size(); ++length) {
    RequestSpec beginning = text;
    beginning.prompt_tokens.resize(length);
    beginning.pooling = Pooling::kLast;
    const Embedding row = Answer::Ask(*engine, beginning)->Get();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(row[i]);
  }
  Embedding mean;
  for (const double value : sum) mean.push_back(static_cast<float>(value / 40.0));
  EXPECT_EQ(Answer::Ask(*engine, text)->Get(), mean);
}

// The last hidden state is what the lm_head makes logits of: its products are the log-probabilities of the
// next token. (Those of the fixture are compared with transformers' in tests/conformance.)
TEST_F(EmbeddingTest, TimesTheLmHeadItGivesTheNextToken) {
  EngineOptions options = Options("gpu-only", 16);
  options.dummy.clear();
  options.model = FixturePath("families/llama2/model.gguf");
  const auto engine = Created(options);
  const auto checkpoint = Checkpoint::Open(options.model);
  ASSERT_TRUE(checkpoint.ok());
  const ModelConfig& config = checkpoint.value()->config();
  const auto hidden = static_cast<size_t>(config.hidden_size);
  std::vector<float> head(static_cast<size_t>(config.vocab_size) * hidden);
  const std::string name = config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  ASSERT_TRUE(checkpoint.value()->ReadRows(name, 0, config.vocab_size, DType::kF32, head.data()).ok());

  RequestSpec text = Text(37, Pooling::kLast);
  const Embedding embedding = Answer::Ask(*engine, text)->Get();
  ASSERT_EQ(embedding.size(), hidden);
  std::vector<double> logits;
  double sum = 0;
  for (size_t row = 0; row < head.size(); row += hidden) {
    double logit = 0;
    for (size_t i = 0; i < hidden; ++i)
      logit += static_cast<double>(head[row + i]) * static_cast<double>(embedding[i]);
    logits.push_back(logit);
    sum += std::exp(logit);
  }
  text.pooling.reset();
  text.sampling = {.max_tokens = 1, .temperature = 0, .num_top_logprobs = kMaxTopLogprobs};
  const Submitted drawn = SubmitTo(*engine, text);
  drawn.output->Wait();
  const SampledToken& next = drawn.output->tokens().at(0);
  ASSERT_EQ(next.top_logprobs.size(), static_cast<size_t>(kMaxTopLogprobs));
  for (const TokenLogprob& top : next.top_logprobs) {
    EXPECT_NEAR(logits[static_cast<size_t>(top.token)] - std::log(sum), top.logprob, 1e-4) << top.token;
  }
  EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(), next.token);
}

TEST_F(EmbeddingTest, TheContextMayBeFullAndNoMore) {
  const auto engine = Created(Options("gpu-only", 512));
  const auto longer = engine->Submit(Text(257, Pooling::kLast), [](const RequestOutput&) {});
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().message, "the context is 256 tokens; the text has 257");
  EXPECT_FALSE(engine->Submit(Text(0, Pooling::kLast), [](const RequestOutput&) {}).ok());
}

TEST_F(EmbeddingTest, ACancelledOneFreesItsBlocks) {
  const auto engine = Created(Options("gpu-only", 16));
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 8; ++i) answers.push_back(Answer::Ask(*engine, Text(250, Pooling::kMean)));
  for (const auto& answer : answers) engine->Cancel(answer->id());
  int cancelled = 0;
  for (const auto& answer : answers) cancelled += answer->Wait() == FinishReason::kCancelled ? 1 : 0;
  EXPECT_GE(cancelled, 7);
  EXPECT_EQ(engine->Stats().gpu_blocks_free, engine->Stats().gpu_blocks_total);
}

}  // namespace
}  // namespace tandem
