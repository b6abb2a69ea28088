// Every strategy gives the same greedy tokens, bit for bit at fp32 on the host backend, however small the gpu
// tier is and whatever happens to a request's neighbours.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/nightly_testing.h"
#include "base/sanitizers.h"
#include "base/seeds_testing.h"
#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "engine/paying_costs.h"
#include "perf/analytic_costs.h"
#include "simulate/switching_testing.h"

namespace tandem {
namespace {

const std::vector<std::string> kHybrids = {"asymmetric", "full-offload", "symmetric", "simple-offload",
                                           "async",      "apex",         "auto",      "switching"};

// One row of CPU attention takes longer than all that the GPU does.
AnalyticCosts CostsWhereTheCpuTierIsOfNoUse() {
  AnalyticCosts costs = CostsWhereTheCpuTierPays();
  costs.cpu_us = 1e5;
  return costs;
}

struct Prompt {
  std::vector<int32_t> tokens;
  int64_t max_tokens = 0;
};

// Lengths log-uniform in [shortest, longest].
std::vector<Prompt> MakePrompts(int count, int64_t shortest, int64_t longest, int64_t max_tokens,
                                int32_t vocab_size, uint32_t seed = 7) {
  std::mt19937 random(seed);
  std::vector<Prompt> prompts(static_cast<size_t>(count));
  const double ratio = static_cast<double>(longest) / static_cast<double>(shortest);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(prompts.size() - 1);
    prompts[i].tokens.resize(
        static_cast<size_t>(std::lround(static_cast<double>(shortest) * std::pow(ratio, share))));
    for (int32_t& token : prompts[i].tokens)
      token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
    prompts[i].max_tokens =
        max_tokens / 2 + static_cast<int64_t>(random() % static_cast<uint32_t>(max_tokens));
  }
  std::shuffle(prompts.begin(), prompts.end(), random);
  return prompts;
}

RequestSpec SpecOf(const Prompt& prompt) {
  RequestSpec spec;
  spec.prompt_tokens = prompt.tokens;
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  spec.sampling.max_tokens = prompt.max_tokens;
  return spec;
}

struct StrategiesMachine {
  std::string device;
  int64_t num_shards = 1;  // the tokens are those of one
  bool in_slices = false;  // of one GPU
};

std::string NameOfStrategiesMachine(const ::testing::TestParamInfo<StrategiesMachine>& info) {
  return info.param.device +
         (info.param.num_shards > 1 ? "_in_" + std::to_string(info.param.num_shards) : "") +
         (info.param.in_slices ? "_slices" : "");
}

// On the cuda backend, and on several shards, at fp32 the same tokens, if not the same bits.
class StrategiesTest : public ::testing::TestWithParam<StrategiesMachine> {
 protected:
  void SetUp() override {
    if (GetParam().device != "cuda") return;
    const auto num_gpus = GetParam().in_slices ? 1 : static_cast<int>(GetParam().num_shards);
    if (!DecoderHarness::HasGpus(num_gpus)) GTEST_SKIP() << "not as many GPUs as " << num_gpus;
  }

  StrategiesTest()
      : cache_folder_(std::filesystem::temp_directory_path() /
                      ("tandem-strategies-" + std::to_string(getpid()))) {}
  ~StrategiesTest() override { std::filesystem::remove_all(cache_folder_); }

  void ExpectSameTokensBesideCancels(uint32_t seed) const;
  void ExpectSameTokensFromChunksInTransit() const;
  void ExpectSameTokensFromRealModel(const std::string& path) const;
  void ExpectSameTokensFromEveryStrategy(const EngineOptions& ample) const;
  void ExpectSameTokensWithKvTypes(const std::string& gpu_type, const std::string& cpu_type) const;

  EngineOptions Options(const std::string& model, const std::string& strategy) const {
    EngineOptions options;
    options.device = GetParam().device;
    options.tensor_parallel_size = GetParam().num_shards;
    if (GetParam().in_slices) options.gpu_sm_slices = static_cast<int>(GetParam().num_shards);
    options.model = model;
    options.strategy = strategy;
    options.dtype = DType::kF32;
    options.cpu_threads = 2;
    options.show_progress = false;
    options.cpu_trial = false;
    options.cache_folder = cache_folder_;  // one profile for all
    return options;
  }

  // With the costs of this machine.
  static std::unique_ptr<Engine> Create(const EngineOptions& options) {
    if (options.strategy != "switching") return Created(Engine::Create(options));
    return Created(Engine::Create(
        options, [](const LayerCosts* costs) { return testing::CreateAnyStrategy("switching", costs); }));
  }

  // The strategy plans by these costs, whatever the machine is.
  static std::unique_ptr<Engine> Create(const EngineOptions& options, const AnalyticCosts& costs) {
    const auto of_model = std::make_shared<AnalyticCosts>(costs);
    return Created(Engine::Create(options, [name = options.strategy, of_model](const LayerCosts* measured) {
      if (measured != nullptr) of_model->layers = measured->num_layers();
      return testing::CreateAnyStrategy(name, measured == nullptr ? nullptr : of_model.get());
    }));
  }

  static std::unique_ptr<Engine> Created(Result<std::unique_ptr<Engine>> engine) {
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  // num_top_logprobs: of SamplingParams.
  static std::vector<Submitted> RunToTheEnd(Engine& engine, const std::vector<Prompt>& prompts,
                                            int32_t num_top_logprobs) {
    std::vector<Submitted> submitted;
    for (const Prompt& prompt : prompts) {
      RequestSpec spec = SpecOf(prompt);
      spec.sampling.num_top_logprobs = num_top_logprobs;
      submitted.push_back(SubmitTo(engine, std::move(spec)));
    }
    for (const Submitted& each : submitted) EXPECT_EQ(each.output->Wait(), FinishReason::kLength);
    return submitted;
  }

  static std::vector<std::vector<int32_t>> RunAll(Engine& engine, const std::vector<Prompt>& prompts) {
    std::vector<std::vector<int32_t>> tokens;
    for (const Submitted& each : RunToTheEnd(engine, prompts, -1)) tokens.push_back(each.output->TokenIds());
    return tokens;
  }

  // With room for everything.
  static std::vector<std::vector<int32_t>> RunAmple(EngineOptions options,
                                                    const std::vector<Prompt>& prompts) {
    options.tensor_parallel_size = 1;
    options.gpu_sm_slices = 0;
    options.gpu_kv_cache = SizeInTokens(32'768);
    const auto engine = Create(options);
    return engine == nullptr ? std::vector<std::vector<int32_t>>() : RunAll(*engine, prompts);
  }

  // The same, with the best at each place.
  using SampledTokens = std::vector<std::vector<SampledToken>>;
  static SampledTokens RunAmpleWithLogprobs(EngineOptions options, const std::vector<Prompt>& prompts) {
    options.tensor_parallel_size = 1;
    options.gpu_sm_slices = 0;
    options.gpu_kv_cache = SizeInTokens(32'768);
    const auto engine = Create(options);
    if (engine == nullptr) return {};
    SampledTokens tokens;
    constexpr int32_t kNumBest = 5;
    for (const Submitted& each : RunToTheEnd(*engine, prompts, kNumBest))
      tokens.push_back(each.output->tokens());
    return tokens;
  }

  // Once the loop has nothing left to do.
  static void ExpectNoBlocksLeak(Engine& engine) {
    engine.CancelAll();
    const EngineStats stats = engine.Stats();
    EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total);
    EXPECT_EQ(stats.cpu_blocks_free, stats.cpu_blocks_total);
  }

  std::filesystem::path cache_folder_;
};

void ExpectSameTokens(const std::vector<std::vector<int32_t>>& tokens,
                      const std::vector<std::vector<int32_t>>& expected, const std::string& strategy) {
  ASSERT_EQ(tokens.size(), expected.size());
  for (size_t i = 0; i < tokens.size(); ++i)
    EXPECT_EQ(tokens[i], expected[i]) << strategy << ", request " << i;
}

// Tiers of codes on two devices, or on one and on several shards: where the same number of K or V, but for
// fp32's rounding, lies between two codes, the tiers may hold either, and of two tokens that are as likely as
// each other either may come. What follows has another context then.
void ExpectSameTokensBesideTies(const std::vector<std::vector<int32_t>>& tokens,
                                const std::vector<std::vector<SampledToken>>& expected,
                                const std::string& strategy) {
  constexpr float kTie = 0.02F;  // of log-probabilities
  ASSERT_EQ(tokens.size(), expected.size());
  size_t num_ties = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_EQ(tokens[i].size(), expected[i].size());
    size_t at = 0;
    while (at < tokens[i].size() && tokens[i][at] == expected[i][at].token) ++at;
    if (at == tokens[i].size()) continue;
    ++num_ties;
    const SampledToken& wanted = expected[i][at];
    const auto found = std::find_if(wanted.top_logprobs.begin(), wanted.top_logprobs.end(),
                                    [&](const TokenLogprob& top) { return top.token == tokens[i][at]; });
    ASSERT_NE(found, wanted.top_logprobs.end())
        << strategy << ", request " << i << ": " << tokens[i][at] << " is none of the best at token " << at;
    EXPECT_LE(wanted.logprob - found->logprob, kTie) << strategy << ", request " << i << ", token " << at;
  }
  EXPECT_LE(num_ties, tokens.size() / 16) << strategy;
}

void PrintTiers(const std::string& strategy, const EngineStats& stats) {
  std::printf(
      "%-15s %5lu iterations, %6lu tokens, %6lu of them in the cpu tier, %6lu tokens of KV swapped, "
      "%3lu preemptions, cohorts rode %lu times, did not %lu times\n",
      strategy.c_str(), stats.iterations, stats.generation_tokens, stats.cpu_tier_tokens,
      stats.swapped_tokens, stats.preemptions, stats.rider_visits, stats.rider_skips);
}

// Where it pays, and the cpu tier has room for five times as much KV as the gpu tier: of all tokens, those of
// the cpu tier. A rider's token takes one iteration more than there are layers, or longer where its attention
// is late, while each in the gpu tier takes one: riders make fewer of the tokens.
double LeastShareOfCpuTier(const std::string& strategy) {
  if (strategy == "full-offload" || strategy == "symmetric" || strategy == "simple-offload") return 1;
  return strategy == "async" ? 0.15 : 0.5;
}

void ExpectDecodesInTheCpuTier(const std::string& strategy, const Engine& engine, size_t num_requests) {
  const EngineStats stats = engine.Stats();
  EXPECT_GE(static_cast<double>(stats.cpu_tier_tokens),
            LeastShareOfCpuTier(strategy) * static_cast<double>(stats.generation_tokens))
      << strategy;
  // A prefill makes the first token of a request, and of one that was preempted; every other one is a decode
  // that reads its prompt there, of three tokens at least.
  constexpr uint64_t kShortestPrompt = 3;
  const auto token_bytes = static_cast<uint64_t>(engine.kv_token_bytes(Tier::kCpu));
  const uint64_t num_prefills = num_requests + stats.preemptions;
  ASSERT_GT(stats.cpu_tier_tokens, num_prefills) << strategy;
  EXPECT_GE(stats.cpu_attention_kv_bytes,
            (stats.cpu_tier_tokens - num_prefills) * kShortestPrompt * token_bytes)
      << strategy;
}

void StrategiesTest::ExpectSameTokensFromEveryStrategy(const EngineOptions& ample) const {
  const std::vector<Prompt> prompts = MakePrompts(kSanitized ? 24 : 64, 3, 200, 30, 300);
  const bool other_bits = GetParam().device == "cuda" || GetParam().num_shards > 1;
  const bool has_ties = other_bits && ample.kv_cache_dtype != "auto";
  const auto expected = has_ties ? std::vector<std::vector<int32_t>>() : RunAmple(ample, prompts);
  const auto likelihoods = has_ties ? RunAmpleWithLogprobs(ample, prompts) : SampledTokens();
  for (const std::string& strategy : kHybrids) {
    EngineOptions tight = ample;
    tight.strategy = strategy;
    tight.gpu_kv_cache = SizeInTokens(384);
    tight.cpu_kv_cache = SizeInTokens(2048);
    const auto engine = Create(tight, CostsWhereTheCpuTierPays());
    ASSERT_NE(engine, nullptr);
    const auto tokens = RunAll(*engine, prompts);
    if (has_ties) {
      ExpectSameTokensBesideTies(tokens, likelihoods, strategy);
    } else {
      ExpectSameTokens(tokens, expected, strategy);
    }
    ExpectNoBlocksLeak(*engine);
    PrintTiers(strategy, engine->Stats());
    ExpectDecodesInTheCpuTier(strategy, *engine, prompts.size());
  }
}

TEST_P(StrategiesTest, SameTokensFromEveryStrategy) {
  EngineOptions ample = Options(FixturePath("families/qwen2/model.gguf"), "gpu-only");
  ample.max_num_batched_tokens = 96;
  ExpectSameTokensFromEveryStrategy(ample);
}

// Heads of 16, and of 64 with two queries each, which AMX attends on tiles where there is AMX.
void StrategiesTest::ExpectSameTokensWithKvTypes(const std::string& gpu_type,
                                                 const std::string& cpu_type) const {
  for (const std::string dummy : {"", "tiny"}) {
    if (kSanitized && !dummy.empty()) continue;
    EngineOptions ample =
        Options(dummy.empty() ? FixturePath("families/qwen2/model.gguf") : std::string(), "gpu-only");
    ample.dummy = dummy;
    ample.max_model_len = 512;
    ample.max_num_batched_tokens = 96;
    ample.kv_cache_dtype = gpu_type;
    ample.cpu_kv_cache_dtype = cpu_type;
    ExpectSameTokensFromEveryStrategy(ample);
  }
}

TEST_P(StrategiesTest, SameTokensFromEveryStrategyWithInt8InBothTiers) {
  ExpectSameTokensWithKvTypes("int8", "int8");
}

// The cpu tier is of the model's type, and holds the numbers that fp8 holds.
TEST_P(StrategiesTest, SameTokensFromEveryStrategyWithFp8InTheGpuTier) {
  ExpectSameTokensWithKvTypes("fp8", "auto");
}

// Neighbours are cancelled at random, and both tiers are so small that others are preempted.
void StrategiesTest::ExpectSameTokensBesideCancels(uint32_t seed) const {
  const std::string model = FixturePath("families/llama2/model.gguf");
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<Prompt> prompts = MakePrompts(kSanitized ? 16 : 40, 3, 120, 40, 300, seed);
  EngineOptions ample = Options(model, "gpu-only");
  ample.max_num_batched_tokens = 64;
  const auto expected = RunAmple(ample, prompts);
  for (const std::string& strategy : kHybrids) {
    EngineOptions tight = ample;
    tight.strategy = strategy;
    tight.gpu_kv_cache = SizeInTokens(320);
    tight.cpu_kv_cache = SizeInTokens(640);
    const auto engine = Create(tight);
    ASSERT_NE(engine, nullptr);
    std::mt19937 random(seed + 4);
    std::vector<Submitted> kept;
    std::vector<Submitted> neighbours;
    for (const Prompt& prompt : prompts) {
      kept.push_back(SubmitTo(*engine, SpecOf(prompt)));
      Prompt neighbour = prompt;
      for (int32_t& token : neighbour.tokens) token = static_cast<int32_t>(random() % 300);
      neighbours.push_back(SubmitTo(*engine, SpecOf(neighbour)));
      if (random() % 2 == 0) {
        const Submitted& victim = neighbours[random() % neighbours.size()];
        if (random() % 2 == 0) victim.output->WaitForTokens(1 + random() % 3);
        engine->Cancel(victim.id);
      }
    }
    std::vector<std::vector<int32_t>> tokens;
    for (const Submitted& each : kept) {
      EXPECT_EQ(each.output->Wait(), FinishReason::kLength);
      tokens.push_back(each.output->TokenIds());
    }
    ExpectSameTokens(tokens, expected, strategy);
    ExpectNoBlocksLeak(*engine);
    PrintTiers(strategy, engine->Stats());
  }
}

TEST_P(StrategiesTest, SameTokensBesideCancelsAndPreemptions) {
  for (const uint32_t seed : SeedsToTry(7, 10)) {
    ExpectSameTokensBesideCancels(seed);
    if (HasFatalFailure()) return;
  }
}

// Prompts many times as long as the gpu tier, beside short ones, on a machine with a slow way between the
// tiers: chunks behind long contexts take several iterations. Some are cancelled amid their prompt.
void StrategiesTest::ExpectSameTokensFromChunksInTransit() const {
  std::vector<Prompt> prompts = MakePrompts(6, 200, kSanitized ? 350 : 700, 8, 300);
  const std::vector<Prompt> short_ones = MakePrompts(kSanitized ? 8 : 16, 3, 40, 30, 300, 11);
  prompts.insert(prompts.end(), short_ones.begin(), short_ones.end());
  std::shuffle(prompts.begin() + 4, prompts.end(), std::mt19937(3));
  EngineOptions ample = Options("", "gpu-only");
  ample.dummy = "tiny";
  ample.max_model_len = 1024;
  ample.max_num_batched_tokens = 96;
  const auto expected = RunAmple(ample, prompts);
  // Who goes on from one of them finds its beginning in the cpu tier.
  std::vector<Prompt> longer = {prompts.begin(), prompts.begin() + 4};
  for (Prompt& prompt : longer) prompt.tokens.insert(prompt.tokens.end(), 50, 17);
  const auto expected_of_longer = RunAmple(ample, longer);
  AnalyticCosts costs = CostsWhereTheCpuTierPays();
  costs.swap_ns = 20'000;
  for (const std::string& strategy : kHybrids) {
    if (kSanitized && (strategy == "symmetric" || strategy == "simple-offload" || strategy == "apex"))
      continue;
    EngineOptions tight = ample;
    tight.strategy = strategy;
    tight.gpu_kv_cache = SizeInTokens(160);
    tight.cpu_kv_cache = SizeInTokens(8192);
    tight.kv_transit = SizeInTokens(1024);
    const auto engine = Create(tight, costs);
    ASSERT_NE(engine, nullptr);
    std::mt19937 random(5);
    std::vector<Submitted> kept;
    std::vector<Submitted> neighbours;
    for (const Prompt& prompt : prompts) {
      kept.push_back(SubmitTo(*engine, SpecOf(prompt)));
      Prompt neighbour = prompt;
      for (int32_t& token : neighbour.tokens) token = static_cast<int32_t>(random() % 300);
      neighbours.push_back(SubmitTo(*engine, SpecOf(neighbour)));
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      // While others are amid their prompts.
      engine->Cancel(neighbours[i].id);
      EXPECT_EQ(kept[i].output->Wait(), FinishReason::kLength);
      EXPECT_EQ(kept[i].output->TokenIds(), expected[i]) << strategy << ", request " << i;
    }
    ExpectSameTokens(RunAll(*engine, longer), expected_of_longer, strategy);
    ExpectNoBlocksLeak(*engine);
    PrintTiers(strategy, engine->Stats());
    EXPECT_GT(engine->Stats().transit_visits, 10U) << strategy;
    EXPECT_GT(engine->Stats().prefix_hit_tokens, 0U) << strategy;
  }
}

TEST_P(StrategiesTest, SameTokensFromChunksInTransit) {
  ExpectSameTokensFromChunksInTransit();
}

// On the cores of a host all strategies take minutes, which TANDEM_NIGHTLY tries.
void StrategiesTest::ExpectSameTokensFromRealModel(const std::string& path) const {
  const bool is_slow = GetParam().device == "host" && !IsNightly();
  const std::vector<std::string> hybrids =
      is_slow ? std::vector<std::string>{"asymmetric", "async", "auto"} : kHybrids;
  const std::vector<Prompt> prompts = MakePrompts(32, 4, 160, 12, 49'000);
  EngineOptions ample = Options(path, "gpu-only");
  ample.max_model_len = 512;
  const auto expected = RunAmple(ample, prompts);
  for (const std::string& strategy : hybrids) {
    EngineOptions tight = ample;
    tight.strategy = strategy;
    tight.gpu_kv_cache = SizeInTokens(512);
    tight.cpu_kv_cache = SizeInTokens(4096);
    const auto engine = Create(tight, CostsWhereTheCpuTierPays());
    ASSERT_NE(engine, nullptr);
    ExpectSameTokens(RunAll(*engine, prompts), expected, strategy);
    PrintTiers(strategy, engine->Stats());
    if (strategy == "async") {
      // As nobody waits its few rows come back amid their tokens, which take 31 iterations: most do not end
      // there.
      EXPECT_GT(engine->Stats().rider_visits, 30U);
      EXPECT_GT(engine->Stats().cpu_tier_tokens, 0U);
      continue;
    }
    ExpectDecodesInTheCpuTier(strategy, *engine, prompts.size());
  }
}

TEST_P(StrategiesTest, RealModelGivesTheSameTokens) {
  const auto path = RealModelPath();
  if (!path) GTEST_SKIP() << "the model file is not here; scripts/fetch_model.sh fetches it";
  if (kSanitized) GTEST_SKIP() << "the small models do this under sanitizers";
  ExpectSameTokensFromRealModel(*path);
}

// Whoever may leave the cpu tier alone does where it is of no use; gpu-only does in any case.
TEST_P(StrategiesTest, NobodyDecodesInACpuTierThatIsOfNoUse) {
  const std::string model = FixturePath("families/qwen2/model.gguf");
  const std::vector<Prompt> prompts = MakePrompts(24, 3, 200, 30, 300);
  for (const std::string strategy : {"gpu-only", "asymmetric", "apex", "auto", "async"}) {
    EngineOptions options = Options(model, strategy);
    options.max_num_batched_tokens = 96;
    options.gpu_kv_cache = SizeInTokens(384);
    options.cpu_kv_cache = SizeInTokens(2048);
    for (const bool pays : {false, true}) {
      if (pays && strategy != "gpu-only") continue;
      const auto engine =
          Create(options, pays ? CostsWhereTheCpuTierPays() : CostsWhereTheCpuTierIsOfNoUse());
      ASSERT_NE(engine, nullptr);
      RunAll(*engine, prompts);
      PrintTiers(strategy, engine->Stats());
      EXPECT_EQ(engine->Stats().cpu_tier_tokens, 0U) << strategy;
      EXPECT_EQ(engine->Stats().cpu_attention_kv_bytes, 0U) << strategy;
      // The others may park in the cpu tier what would else be computed again.
      if (strategy == "gpu-only") {
        EXPECT_EQ(engine->Stats().swapped_tokens, 0U);
      }
    }
  }
}

// At 16 bits the places differ by rounding: products of other numbers of rows, attention in another order.
// Until two requests part, where two tokens are about as likely, log-probabilities agree within a tolerance.
class HalfComparison {
 public:
  void Compare(const std::vector<SampledToken>& got, const std::vector<SampledToken>& expected,
               const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
      for (const TokenLogprob& each : expected[i].top_logprobs) {
        const std::optional<float> other = LogprobOf(each.token, got[i]);
        if (!other) continue;  // at the end of either list
        const double difference = std::abs(*other - each.logprob);
        sum_ += difference;
        ++count_;
        worst_ = std::max(worst_, difference);
        EXPECT_LE(difference, kTolerance) << what << ", token " << i << ", candidate " << each.token;
      }
      if (got[i].token == expected[i].token) continue;
      ++num_parted_;
      const std::optional<float> rejected = LogprobOf(got[i].token, expected[i]);
      ASSERT_TRUE(rejected) << what << ", token " << i;
      EXPECT_LE(expected[i].logprob - *rejected, 2 * kTolerance) << what << ", token " << i;
      return;
    }
  }
  void Print(const std::string& strategy) const {
    std::printf("%-15s %ld log-probabilities, difference mean %.2e, worst %.2e; %ld requests parted\n",
                strategy.c_str(), count_, sum_ / static_cast<double>(count_), worst_, num_parted_);
  }
  int64_t count() const { return count_; }

 private:
  static constexpr double kTolerance = 0.1;

  static std::optional<float> LogprobOf(int32_t token, const SampledToken& sampled) {
    for (const TokenLogprob& each : sampled.top_logprobs) {
      if (each.token == token) return each.logprob;
    }
    return std::nullopt;
  }

  double sum_ = 0;
  double worst_ = 0;
  int64_t count_ = 0;
  int64_t num_parted_ = 0;
};

TEST_P(StrategiesTest, HalfLogProbabilitiesStayWithinTolerance) {
  const std::string model = FixturePath("families/qwen2/model.gguf");
  const std::vector<Prompt> prompts = MakePrompts(32, 3, 160, 20, 300);
  const auto run = [&](const EngineOptions& options) {
    std::vector<std::vector<SampledToken>> all;
    const auto engine = Create(options, CostsWhereTheCpuTierPays());
    if (engine == nullptr) return all;
    std::vector<Submitted> submitted;
    for (const Prompt& prompt : prompts) {
      RequestSpec spec = SpecOf(prompt);
      spec.sampling.num_top_logprobs = 8;
      submitted.push_back(SubmitTo(*engine, std::move(spec)));
    }
    for (const Submitted& each : submitted) {
      EXPECT_EQ(each.output->Wait(), FinishReason::kLength);
      all.push_back(each.output->tokens());
    }
    if (options.strategy != "gpu-only") ExpectDecodesInTheCpuTier(options.strategy, *engine, prompts.size());
    return all;
  };
  EngineOptions ample = Options(model, "gpu-only");
  ample.dtype = DecoderHarness::HalfType(GetParam().device);
  ample.max_num_batched_tokens = 96;
  ample.gpu_kv_cache = SizeInTokens(32'768);
  const auto expected = run(ample);
  ASSERT_EQ(expected.size(), prompts.size());
  int64_t num_tokens = 0;
  for (const std::vector<SampledToken>& each : expected) num_tokens += static_cast<int64_t>(each.size());
  for (const std::string& strategy : kHybrids) {
    EngineOptions tight = ample;
    tight.strategy = strategy;
    tight.gpu_kv_cache = SizeInTokens(384);
    tight.cpu_kv_cache = SizeInTokens(2048);
    const auto got = run(tight);
    ASSERT_EQ(got.size(), prompts.size());
    HalfComparison comparison;
    for (size_t i = 0; i < prompts.size(); ++i)
      comparison.Compare(got[i], expected[i], strategy + ", request " + std::to_string(i));
    // Few part, and late: of eight candidates for each token most are compared.
    EXPECT_GE(2 * comparison.count(), 8 * num_tokens) << strategy;
    comparison.Print(strategy);
  }
}

// At 16 bits gpu-only is the same whether there is a cpu tier or not, and from one run to the next: one
// request at a time, so that nothing but the configuration could make a difference.
TEST_P(StrategiesTest, HalfGpuOnlyIsIdentical) {
  const std::string model = FixturePath("families/llama2/model.gguf");
  const std::vector<Prompt> prompts = MakePrompts(8, 3, 120, 24, 300);
  const auto run = [&](const EngineOptions& options) {
    std::vector<std::vector<int32_t>> tokens;
    const auto engine = Create(options);
    if (engine == nullptr) return tokens;
    for (const Prompt& prompt : prompts) {
      const Submitted submitted = SubmitTo(*engine, SpecOf(prompt));
      EXPECT_EQ(submitted.output->Wait(), FinishReason::kLength);
      tokens.push_back(submitted.output->TokenIds());
    }
    return tokens;
  };
  EngineOptions options = Options(model, "gpu-only");
  options.dtype = DecoderHarness::HalfType(GetParam().device);
  options.gpu_kv_cache = SizeInTokens(4096);
  const auto expected = run(options);
  EXPECT_EQ(run(options), expected);
  options.gpu_kv_cache = SizeInTokens(384);
  EXPECT_EQ(run(options), expected);
  // With room in the gpu tier the other strategies do just the same.
  options.strategy = "asymmetric";
  options.cpu_kv_cache = SizeInTokens(1024);
  EXPECT_EQ(run(options), expected);
}

INSTANTIATE_TEST_SUITE_P(Devices, StrategiesTest,
                         ::testing::Values(StrategiesMachine{"host"}, StrategiesMachine{"cuda"}),
                         NameOfStrategiesMachine);

// Cohorts, moves, transit and cancels alike on all shards. Tokens are compared with those of one.
class ShardedStrategiesTest : public StrategiesTest {
 protected:
  void SetUp() override {
    if (kSanitized && GetParam().num_shards > 2) GTEST_SKIP() << "two shards do this under sanitizers";
    StrategiesTest::SetUp();
  }

  static bool TwoDoThisToo() {
    return GetParam().device == "host" && GetParam().num_shards > 2 && !IsNightly();
  }
};

TEST_P(ShardedStrategiesTest, SameTokensFromEveryStrategy) {
  EngineOptions ample = Options("", "gpu-only");
  ample.dummy = "tiny";
  ample.max_model_len = 512;
  ample.max_num_batched_tokens = 96;
  ExpectSameTokensFromEveryStrategy(ample);
}

TEST_P(ShardedStrategiesTest, SameTokensBesideCancelsAndPreemptions) {
  if (TwoDoThisToo()) GTEST_SKIP() << "two shards do this; TANDEM_NIGHTLY=1 runs four";
  ExpectSameTokensBesideCancels(7);
}

TEST_P(ShardedStrategiesTest, SameTokensFromChunksInTransit) {
  if (TwoDoThisToo()) GTEST_SKIP() << "two shards do this; TANDEM_NIGHTLY=1 runs four";
  ExpectSameTokensFromChunksInTransit();
}

// 4 heads and 2 or 4 KV heads: cut, or in two shards the same.
INSTANTIATE_TEST_SUITE_P(Shards, ShardedStrategiesTest,
                         ::testing::Values(StrategiesMachine{"host", 2}, StrategiesMachine{"host", 4},
                                           StrategiesMachine{"cuda", 2, true},
                                           StrategiesMachine{"cuda", 4, true}, StrategiesMachine{"cuda", 2}),
                         NameOfStrategiesMachine);

class ThreeShardsTest : public StrategiesTest {};

TEST_P(ThreeShardsTest, RealModelGivesTheSameTokens) {
  const auto path = RealModelPath();
  if (!path) GTEST_SKIP() << "the model file is not here; scripts/fetch_model.sh fetches it";
  if (kSanitized) GTEST_SKIP() << "the small models do this under sanitizers";
  ExpectSameTokensFromRealModel(*path);
}

// 9 heads and 3 KV heads.
INSTANTIATE_TEST_SUITE_P(Shards, ThreeShardsTest,
                         ::testing::Values(StrategiesMachine{"host", 3}, StrategiesMachine{"cuda", 3, true}),
                         NameOfStrategiesMachine);

}  // namespace
}  // namespace tandem
