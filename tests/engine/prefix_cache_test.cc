// Requests that begin alike compute their beginning once: the same tokens as without, from every strategy and
// either tier, and nothing leaks.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitizers.h"
#include "base/seeds_testing.h"
#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "engine/paying_costs.h"
#include "simulate/switching_testing.h"

namespace tandem {
namespace {

using Tokens = std::vector<int32_t>;

// Conversations that share their beginning, and go on with what was answered.
struct Session {
  std::vector<Tokens> said;  // what is added to the history before each turn
};

std::vector<Session> MakeSessions(int num_sessions, int num_turns, uint32_t seed,
                                  size_t num_system_tokens = 70) {
  std::mt19937 random(seed);
  const auto draw = [&](size_t count) {
    Tokens tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 300);
    return tokens;
  };
  const Tokens system = draw(num_system_tokens);
  std::vector<Session> sessions(static_cast<size_t>(num_sessions));
  for (Session& session : sessions) {
    for (int turn = 0; turn < num_turns; ++turn) session.said.push_back(draw(5 + random() % 40));
    session.said[0].insert(session.said[0].begin(), system.begin(), system.end());
  }
  return sessions;
}

RequestSpec SpecOf(const Tokens& prompt, int64_t max_tokens = 12) {
  RequestSpec spec;
  spec.prompt_tokens = prompt;
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  spec.sampling.max_tokens = max_tokens;
  return spec;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  PrefixCacheTest()
      : cache_folder_(std::filesystem::temp_directory_path() /
                      ("tandem-prefix-" + std::to_string(getpid()))) {}
  ~PrefixCacheTest() override { std::filesystem::remove_all(cache_folder_); }

  EngineOptions Options(const std::string& strategy = "gpu-only") const {
    EngineOptions options;
    options.device = device_;
    options.kv_cache_dtype = kv_type_;
    options.cpu_kv_cache_dtype = kv_type_ == "fp8" ? "auto" : kv_type_;
    options.model = FixturePath("families/llama2/model.gguf");
    options.strategy = strategy;
    options.dtype = DType::kF32;
    options.cpu_threads = 2;
    options.gpu_kv_cache = SizeInTokens(32'768);
    options.max_num_batched_tokens = 96;
    options.show_progress = false;
    options.cpu_trial = false;
    options.cache_folder = cache_folder_;
    return options;
  }

  static std::unique_ptr<Engine> Create(const EngineOptions& options) {
    const auto costs = std::make_shared<AnalyticCosts>(CostsWhereTheCpuTierPays());
    auto engine = Engine::Create(options, [name = options.strategy, costs](const LayerCosts* measured) {
      if (measured != nullptr) costs->layers = measured->num_layers();
      return testing::CreateAnyStrategy(name, measured == nullptr ? nullptr : costs.get());
    });
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  struct Played {
    std::vector<Tokens> answers;  // of all turns of all sessions
    int64_t num_cached = 0;
  };
  // A turn of all sessions at a time.
  static Played Play(Engine& engine, const std::vector<Session>& sessions) {
    Played played;
    std::vector<Tokens> histories(sessions.size());
    for (size_t turn = 0; turn < sessions[0].said.size(); ++turn) {
      std::vector<Submitted> submitted;
      for (size_t i = 0; i < sessions.size(); ++i) {
        const Tokens& said = sessions[i].said[turn];
        histories[i].insert(histories[i].end(), said.begin(), said.end());
        submitted.push_back(SubmitTo(engine, SpecOf(histories[i])));
      }
      for (size_t i = 0; i < sessions.size(); ++i) {
        EXPECT_EQ(submitted[i].output->Wait(), FinishReason::kLength);
        const Tokens answer = submitted[i].output->TokenIds();
        histories[i].insert(histories[i].end(), answer.begin(), answer.end());
        played.answers.push_back(answer);
        played.num_cached += submitted[i].output->num_cached_tokens();
      }
    }
    return played;
  }

  static void ExpectNoBlocksLeak(Engine& engine) {
    engine.CancelAll();
    const EngineStats stats = engine.Stats();
    EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total);
    EXPECT_EQ(stats.cpu_blocks_free, stats.cpu_blocks_total);
  }

  void ExpectSameTokensFromEveryStrategyAndTier() const;

  Played PlayWithoutCache(const std::vector<Session>& sessions) const {
    return PlayWithoutCache(sessions, Options());
  }
  static Played PlayWithoutCache(const std::vector<Session>& sessions, EngineOptions options) {
    options.prefix_caching = false;
    const auto engine = Create(options);
    const Played played = Play(*engine, sessions);
    EXPECT_EQ(played.num_cached, 0);
    EXPECT_EQ(engine->Stats().prefix_queried_tokens, 0U);
    return played;
  }

  std::string device_ = "host";
  std::string kv_type_ = "auto";  // of both tiers
  std::filesystem::path cache_folder_;
};

void PrefixCacheTest::ExpectSameTokensFromEveryStrategyAndTier() const {
  const std::vector<Session> sessions = MakeSessions(kSanitized ? 5 : 8, 4, 3);
  const Played expected = PlayWithoutCache(sessions);
  for (const std::string strategy : {"gpu-only", "asymmetric", "full-offload", "symmetric", "simple-offload",
                                     "async", "apex", "auto", "switching"}) {
    SCOPED_TRACE(strategy);
    EngineOptions options = Options(strategy);
    // Less than all sessions have: what is cached is given up, prompts wait, requests change their tier.
    options.gpu_kv_cache = SizeInTokens(640);
    if (strategy != "gpu-only") options.cpu_kv_cache = SizeInTokens(1536);
    const auto engine = Create(options);
    ASSERT_NE(engine, nullptr);
    const Played played = Play(*engine, sessions);
    EXPECT_EQ(played.answers, expected.answers);
    EXPECT_GT(played.num_cached, 0);
    ExpectNoBlocksLeak(*engine);
    const EngineStats stats = engine->Stats();
    std::printf(
        "%-15s %6ld tokens cached of %6lu, %5lu of %5lu tokens made in the cpu tier, %lu preemptions\n",
        strategy.c_str(), played.num_cached, stats.prefix_queried_tokens, stats.cpu_tier_tokens,
        stats.generation_tokens, stats.preemptions);
    EXPECT_EQ(stats.prefix_hit_tokens, static_cast<uint64_t>(played.num_cached));
    EXPECT_EQ(stats.cpu_tier_tokens > 0, strategy != "gpu-only");
  }
}

// What CPU attention reads once for several rows: whole partitions of 512 tokens.
TEST_F(PrefixCacheTest, OneReadForManyGivesTheSameTokens) {
  const std::vector<Session> sessions = MakeSessions(kSanitized ? 3 : 6, 3, 11, 600);
  const auto options_of = [&](const std::string& strategy) {
    EngineOptions options = Options(strategy);
    options.model = FixturePath("by_heart/model");  // of longer contexts than the others
    options.max_model_len = 1024;
    return options;
  };
  const Played expected = PlayWithoutCache(sessions, options_of("gpu-only"));
  for (const std::string strategy : {"full-offload", "symmetric", "simple-offload", "async", "auto"}) {
    SCOPED_TRACE(strategy);
    EngineOptions options = options_of(strategy);
    options.gpu_kv_cache = SizeInTokens(1024);
    options.cpu_kv_cache = SizeInTokens(8192);
    const auto engine = Create(options);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(Play(*engine, sessions).answers, expected.answers);
    ExpectNoBlocksLeak(*engine);
    const EngineStats stats = engine->Stats();
    std::printf("%-15s %5lu tokens made in the cpu tier, %.2f of the KV that they attend read\n",
                strategy.c_str(), stats.cpu_tier_tokens,
                static_cast<double>(stats.cpu_attention_kv_bytes) /
                    static_cast<double>(stats.cpu_attention_attended_kv_bytes));
    EXPECT_LE(stats.cpu_attention_kv_bytes, stats.cpu_attention_attended_kv_bytes);
    // How many share depends on who decodes at the same time. The others decode there what the gpu tier has
    // no room for, which may be one at a time.
    if (stats.cpu_tier_tokens == stats.generation_tokens) {
      EXPECT_LT(stats.cpu_attention_kv_bytes,
                0.95 * static_cast<double>(stats.cpu_attention_attended_kv_bytes));
    }
  }
}

TEST_F(PrefixCacheTest, SameTokensFromEveryStrategyAndTier) {
  ExpectSameTokensFromEveryStrategyAndTier();
}

struct CacheMachine {
  std::string device;
  std::string kv_type;
};

class PrefixCacheMachineTest : public PrefixCacheTest, public ::testing::WithParamInterface<CacheMachine> {
 protected:
  void SetUp() override {
    if (GetParam().device == "cuda" && !DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU";
    device_ = GetParam().device;
    kv_type_ = GetParam().kv_type;
  }
};

INSTANTIATE_TEST_SUITE_P(Machines, PrefixCacheMachineTest,
                         ::testing::Values(CacheMachine{"host", "int8"}, CacheMachine{"host", "fp8"},
                                           CacheMachine{"cuda", "auto"}, CacheMachine{"cuda", "int8"},
                                           CacheMachine{"cuda", "fp8"}),
                         [](const auto& machine) {
                           return machine.param.device + "_" + machine.param.kv_type;
                         });

TEST_P(PrefixCacheMachineTest, SameTokensFromEveryStrategyAndTier) {
  ExpectSameTokensFromEveryStrategyAndTier();
}

// Together their tables have more blocks than the tier.
TEST_P(PrefixCacheMachineTest, ManyBeginWithWhatFillsHalfTheTier) {
  constexpr int kNumAlike = 24;
  EngineOptions options = Options();
  options.gpu_kv_cache = SizeInTokens(1280);
  const auto engine = Create(options);
  ASSERT_NE(engine, nullptr);
  std::mt19937 random(7);
  const auto draw = [&](size_t count) {
    Tokens tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 300);
    return tokens;
  };
  const Tokens beginning = draw(480);
  EXPECT_EQ(SubmitTo(*engine, SpecOf(beginning, 1)).output->Wait(), FinishReason::kLength);
  std::vector<Submitted> submitted;
  std::vector<Tokens> prompts;
  for (int i = 0; i < kNumAlike; ++i) {
    Tokens prompt = beginning;
    const Tokens end = draw(3);
    prompt.insert(prompt.end(), end.begin(), end.end());
    submitted.push_back(SubmitTo(*engine, SpecOf(prompt)));
    prompts.push_back(std::move(prompt));
  }
  for (const Submitted& each : submitted) EXPECT_EQ(each.output->Wait(), FinishReason::kLength);
  options.prefix_caching = false;
  const auto plain = Create(options);
  ASSERT_NE(plain, nullptr);
  for (size_t i = 0; i < prompts.size(); i += 5) {
    const Submitted alone = SubmitTo(*plain, SpecOf(prompts[i]));
    EXPECT_EQ(alone.output->Wait(), FinishReason::kLength);
    EXPECT_EQ(submitted[i].output->TokenIds(), alone.output->TokenIds()) << "request " << i;
  }
}

// One request at a time, room for all: whatever whole blocks were computed before are found, but for the one
// that the last token of a prompt lies in.
TEST_F(PrefixCacheTest, HitsAreAllThatIsPossible) {
  const auto engine = Create(Options());
  const int64_t block_size = engine->Stats().block_size;
  std::set<Tokens> computed;  // tokens up to the end of a block
  int64_t num_possible = 0;
  int64_t num_found = 0;
  for (const Session& session : MakeSessions(6, 4, 5)) {
    Tokens history;
    for (const Tokens& said : session.said) {
      history.insert(history.end(), said.begin(), said.end());
      int64_t possible = 0;
      while (possible + block_size < std::ssize(history) &&
             computed.contains(Tokens(history.begin(), history.begin() + possible + block_size)))
        possible += block_size;
      const Submitted request = SubmitTo(*engine, SpecOf(history));
      request.output->Wait();
      EXPECT_EQ(request.output->num_cached_tokens(), possible);
      num_possible += possible;
      num_found += request.output->num_cached_tokens();
      const Tokens answer = request.output->TokenIds();
      history.insert(history.end(), answer.begin(), answer.end());
      // K and V of the last token are not.
      for (int64_t end = block_size; end < std::ssize(history); end += block_size)
        computed.insert(Tokens(history.begin(), history.begin() + end));
    }
  }
  EXPECT_GT(num_found, 1000);
  EXPECT_EQ(engine->Stats().prefix_hit_tokens, static_cast<uint64_t>(num_possible));
  EXPECT_EQ(engine->Stats().recomputed_tokens, 0U);
}

// Those that come together too: the others wait until one has computed what all begin with.
TEST_F(PrefixCacheTest, WhatSeveralBeginWithIsComputedOnce) {
  for (const std::string strategy : {"gpu-only", "auto"}) {
    SCOPED_TRACE(strategy);
    EngineOptions options = Options(strategy);
    if (strategy == "auto") options.cpu_kv_cache = SizeInTokens(4096);
    const auto engine = Create(options);
    constexpr int kCount = 12;
    const Tokens prompt = MakeSessions(1, 1, 21)[0].said[0];
    RequestSpec long_one = SpecOf(Tokens(400, 3), 4);
    const Submitted first = SubmitTo(*engine, std::move(long_one));
    std::vector<Submitted> submitted;
    for (int i = 0; i < kCount; ++i) submitted.push_back(SubmitTo(*engine, SpecOf(prompt)));
    first.output->Wait();
    for (const Submitted& each : submitted) {
      EXPECT_EQ(each.output->Wait(), FinishReason::kLength);
      EXPECT_EQ(each.output->TokenIds(), submitted[0].output->TokenIds());
    }
    const int64_t block_size = engine->Stats().block_size;
    const int64_t num_shared = (std::ssize(prompt) - 1) / block_size * block_size;
    EXPECT_EQ(engine->Stats().prefix_hit_tokens, static_cast<uint64_t>((kCount - 1) * num_shared));
  }
}

TEST_F(PrefixCacheTest, RequestsOfOtherSaltsShareNothing) {
  const auto engine = Create(Options());
  const Tokens prompt(100, 7);
  const auto cached_with = [&](const std::string& salt) {
    RequestSpec spec = SpecOf(prompt);
    spec.cache_salt = salt;
    const Submitted request = SubmitTo(*engine, std::move(spec));
    request.output->Wait();
    return request.output->num_cached_tokens();
  };
  EXPECT_EQ(cached_with(""), 0);
  EXPECT_EQ(cached_with("a"), 0);
  EXPECT_EQ(cached_with("b"), 0);
  EXPECT_EQ(cached_with("a"), 96);
  EXPECT_EQ(cached_with(""), 96);
  engine->ForgetPrefixes();
  EXPECT_EQ(cached_with("a"), 0);
  EXPECT_EQ(cached_with("a"), 96);
  const EngineStats stats = engine->Stats();
  EXPECT_GT(stats.prefix_blocks[0], 0);
}

// Log-probabilities of a prompt come of computing it, embeddings too.
TEST_F(PrefixCacheTest, WhatIsAskedOfThePromptIsComputed) {
  const auto engine = Create(Options());
  const Tokens prompt = MakeSessions(1, 1, 9)[0].said[0];
  const auto scored = [&] {
    std::vector<float> logprobs;
    RequestSpec spec = SpecOf(prompt);
    spec.sampling.num_prompt_top_logprobs = 0;
    const auto output = std::make_shared<Collected>();
    EXPECT_TRUE(engine
                    ->Submit(std::move(spec),
                             [&logprobs, output](RequestOutput part) {
                               for (const SampledToken& token : part.prompt_logprobs)
                                 logprobs.push_back(token.logprob);
                               output->Take(std::move(part));
                             })
                    .ok());
    output->Wait();
    EXPECT_EQ(output->num_cached_tokens(), 0);
    return logprobs;
  };
  const std::vector<float> first = scored();
  EXPECT_EQ(first.size(), prompt.size() - 1);
  EXPECT_EQ(scored(), first);
  const auto embedded = [&] {
    std::vector<float> embedding;
    RequestSpec spec;
    spec.prompt_tokens = prompt;
    spec.pooling = Pooling::kMean;
    const auto output = std::make_shared<Collected>();
    EXPECT_TRUE(engine
                    ->Submit(std::move(spec),
                             [&embedding, output](RequestOutput part) {
                               embedding = part.embedding;
                               output->Take(std::move(part));
                             })
                    .ok());
    output->Wait();
    return embedding;
  };
  const std::vector<float> embedding = embedded();
  EXPECT_FALSE(embedding.empty());
  EXPECT_EQ(embedded(), embedding);
}

class PrefixCacheRandomTest : public PrefixCacheTest, public ::testing::WithParamInterface<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, PrefixCacheRandomTest, ::testing::ValuesIn(SeedsToTry(11, 10)));

// Sessions of several clients at once, turns cut short at random, both tiers too small for all.
TEST_P(PrefixCacheRandomTest, SameTokensBesideCancels) {
  constexpr int kClients = 3;
  const std::vector<Session> sessions = MakeSessions(kSanitized ? 6 : 18, 3, GetParam());
  const Played expected = PlayWithoutCache(sessions);
  for (const std::string strategy : {"gpu-only", "asymmetric", "async", "auto", "switching"}) {
    SCOPED_TRACE(strategy);
    EngineOptions options = Options(strategy);
    options.gpu_kv_cache = SizeInTokens(512);
    if (strategy != "gpu-only") options.cpu_kv_cache = SizeInTokens(512);
    const auto engine = Create(options);
    ASSERT_NE(engine, nullptr);
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        std::mt19937 random(GetParam() * 10 + static_cast<uint32_t>(client));
        for (size_t i = static_cast<size_t>(client); i < sessions.size(); i += kClients) {
          Tokens history;
          for (size_t turn = 0; turn < sessions[i].said.size(); ++turn) {
            const Tokens& said = sessions[i].said[turn];
            history.insert(history.end(), said.begin(), said.end());
            // The same at the same time, which goes away in the middle.
            const Submitted other = SubmitTo(*engine, SpecOf(history, 40));
            const Submitted request = SubmitTo(*engine, SpecOf(history));
            other.output->WaitForTokens(random() % 6);
            engine->Cancel(other.id);
            if (random() % 16 == 0) engine->ForgetPrefixes();
            ASSERT_EQ(request.output->Wait(), FinishReason::kLength);
            const Tokens answer = request.output->TokenIds();
            EXPECT_EQ(answer, expected.answers[turn * sessions.size() + i])
                << "session " << i << " turn " << turn;
            history.insert(history.end(), answer.begin(), answer.end());
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    ExpectNoBlocksLeak(*engine);
    EXPECT_GT(engine->Stats().prefix_hit_tokens, 0U);
  }
}

}  // namespace
}  // namespace tandem
