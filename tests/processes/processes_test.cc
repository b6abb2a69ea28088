// Shards in processes of their own give the tokens of shards of one process, on the host backend bit for bit.
// Started by mpirun with as many processes as shards, of which rank 0 tests and the others follow:
//
//   mpirun -n 3 build/host-release/tests/processes_test
//   mpirun -n 2 build/cuda-release/tests/processes_test --gtest_filter='*cuda*'

#include "collective/processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "engine/paying_costs.h"
#include "engine/shards.h"
#include "execute/remote_executor.h"
#include "simulate/switching_testing.h"

namespace tandem {
namespace {

Processes* all_processes = nullptr;

bool Leads() {
  return all_processes->shard().rank == 0;
}

// Drawn, with log-probabilities, of all requests.
using Answers = std::vector<std::vector<SampledToken>>;

// bits: of the log-probabilities too.
void ExpectSame(const Answers& answers, const Answers& expected, const std::string& what, bool bits) {
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i].size(), expected[i].size()) << what << ", request " << i;
    for (size_t j = 0; j < answers[i].size(); ++j) {
      ASSERT_EQ(answers[i][j].token, expected[i][j].token) << what << ", request " << i << ", token " << j;
      if (!bits) continue;
      ASSERT_EQ(answers[i][j].logprob, expected[i][j].logprob)
          << what << ", request " << i << ", token " << j;
    }
  }
}

RequestSpec SpecOf(int index, int64_t max_tokens) {
  RequestSpec spec;
  for (int i = 0; i < 3 + (index * 37) % 120; ++i) spec.prompt_tokens.push_back((31 * index + 7 * i) % 300);
  spec.sampling.temperature = index % 3 == 0 ? 1.0F : 0.0F;
  spec.sampling.seed = static_cast<uint64_t>(index);
  spec.sampling.ignore_eos = true;
  spec.sampling.max_tokens = max_tokens;
  spec.sampling.num_top_logprobs = 1;
  return spec;
}

struct ProcessesMachine {
  std::string device;
  bool in_slices = false;  // of one GPU, which the processes share; else a GPU each
};

std::string NameOfProcessesMachine(const ::testing::TestParamInfo<ProcessesMachine>& info) {
  return info.param.device + (info.param.in_slices ? "_slices" : "");
}

class ProcessesTest : public ::testing::TestWithParam<ProcessesMachine> {
 protected:
  // On all ranks alike.
  void SetUp() override {
    if (!OnGpus()) return;
    const int num_gpus = GetParam().in_slices ? 1 : all_processes->shard().size;
    if (!DecoderHarness::HasGpus(num_gpus)) GTEST_SKIP() << "not as many GPUs as " << num_gpus;
  }

  ProcessesTest()
      : cache_folder_(std::filesystem::temp_directory_path() /
                      ("tandem-processes-" + std::to_string(getpid()))) {}
  ~ProcessesTest() override { std::filesystem::remove_all(cache_folder_); }

  static bool OnGpus() { return GetParam().device == "cuda"; }
  // On a GPU that processes take turns on an iteration takes a hundred times as long.
  static std::vector<std::string> Strategies(const std::vector<std::string>& all) {
    return OnGpus() ? std::vector<std::string>{"gpu-only", "asymmetric", "async"} : all;
  }

  EngineOptions Options() const {
    EngineOptions options;
    options.device = GetParam().device;
    options.tensor_parallel_size = all_processes->shard().size;
    if (GetParam().in_slices) options.gpu_sm_slices = all_processes->shard().size;
    options.profile_seconds = 1;
    // Three have three heads each; two and four the heads of a model of random weights.
    if (options.tensor_parallel_size == 3) {
      options.model = FixturePath("families/smollm2");
      options.tokenizer = FixturePath("families/llama2/model.gguf");
    } else {
      options.dummy = "tiny";
    }
    options.dtype = DType::kF32;
    options.cpu_threads = 2;
    options.max_num_batched_tokens = 96;
    options.show_progress = false;
    options.cpu_trial = false;
    options.cache_folder = cache_folder_;
    return options;
  }

  // On rank 0 test gets an engine whose shards are the processes.
  static void WithEngine(EngineOptions options, const std::function<void(Engine&)>& test) {
    options.processes = all_processes;
    if (!Leads()) {
      const Status followed = FollowRank0(options);
      EXPECT_TRUE(followed.ok()) << followed.error().message;
      if (!followed.ok()) all_processes->Receive(0, std::nullopt);
      return;
    }
    {
      const auto engine = CreateEngine(options);
      if (engine != nullptr) test(*engine);
    }
    for (int rank = 1; rank < all_processes->shard().size; ++rank) SendEnd(all_processes, rank);
  }

  // The strategy plans by costs for which the cpu tier pays, whatever the machine is.
  static std::unique_ptr<Engine> CreateEngine(const EngineOptions& options) {
    const auto costs = std::make_shared<AnalyticCosts>(CostsWhereTheCpuTierPays());
    auto engine = Engine::Create(options, [name = options.strategy, costs](const LayerCosts* measured) {
      if (measured != nullptr) costs->layers = measured->num_layers();
      return testing::CreateAnyStrategy(name, measured == nullptr ? nullptr : costs.get());
    });
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  static Answers RunAll(Engine& engine, int num_requests, int64_t max_tokens) {
    std::vector<Submitted> submitted;
    for (int i = 0; i < num_requests; ++i) submitted.push_back(SubmitTo(engine, SpecOf(i, max_tokens)));
    Answers answers;
    for (const Submitted& each : submitted) {
      EXPECT_EQ(each.output->Wait(), FinishReason::kLength) << each.output->error_message();
      answers.push_back(each.output->tokens());
    }
    return answers;
  }

  // Of shards of this process, with room for everything.
  static Answers RunInOneProcess(EngineOptions options, int num_requests, int64_t max_tokens) {
    options.strategy = "gpu-only";
    options.gpu_kv_cache = SizeInTokens(32'768);
    options.cpu_kv_cache.reset();
    if (OnGpus()) options.gpu_sm_slices = static_cast<int>(options.tensor_parallel_size);
    const auto engine = CreateEngine(options);
    return engine == nullptr ? Answers() : RunAll(*engine, num_requests, max_tokens);
  }

  std::filesystem::path cache_folder_;
};

TEST(ShareWithAllTest, EachHasWhatAllHaveGiven) {
  const Shard shard = all_processes->shard();
  const auto given_by = [](int rank) {
    return Message(static_cast<size_t>(rank) * 1000, static_cast<std::byte>(rank + 1));
  };
  for (int round = 0; round < 3; ++round) {
    const auto all = ShareWithAll(all_processes, given_by(shard.rank));
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), static_cast<size_t>(shard.size));
    for (int rank = 0; rank < shard.size; ++rank)
      EXPECT_EQ((*all)[static_cast<size_t>(rank)], given_by(rank)) << "of rank " << rank;
  }
}

TEST(ShareWithAllTest, WithoutRank0ItIsAbsent) {
  if (Leads()) {
    for (int rank = 1; rank < all_processes->shard().size; ++rank) {
      SendEnd(all_processes, rank);
      EXPECT_EQ(all_processes->Receive(rank, std::nullopt), Message(7));
    }
    return;
  }
  EXPECT_FALSE(ShareWithAll(all_processes, Message(7)));
}

TEST_P(ProcessesTest, ExchangeGivesTheBitsOfOneProcess) {
  // Sums of few and of many numbers, which are cut; of numbers whose order matters.
  const Shard shard = all_processes->shard();
  EngineOptions options = Options();
  options.processes = all_processes;
  const auto backend = CreateBackend(options);
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  const auto created = CreateCollectives(*backend, options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  CollectiveGroup& group = *created == nullptr ? *all_processes->collectives() : **created;
  const auto stream = backend->device->CreateStream(StreamKind::kCompute, "shard");
  Collective& collective = *group.Of(shard.rank, ShardChannel::kCompute);
  Collective& riders = *group.Of(shard.rank, ShardChannel::kRiders);
  const auto upload = [&]<typename T>(const std::vector<T>& values) {
    Buffer buffer = backend->device->Allocate(values.size() * sizeof(T), MemoryKind::kDevice, "test").value();
    stream->Copy(buffer.data(), values.data(), buffer.size_bytes());
    stream->Synchronize();
    return buffer;
  };
  const auto download = [&]<typename T>(const Buffer& buffer, std::vector<T>* values) {
    stream->Copy(values->data(), buffer.data(), buffer.size_bytes());
    stream->Synchronize();
  };
  for (const int64_t cols : {1, 911, 50'001, 1'000'000}) {
    constexpr int64_t kRows = 3;
    const auto value = [](int rank, int64_t i) {
      return (rank % 2 == 0 ? 1.0F : -1.0F) * static_cast<float>(1 + (i * 7919 + rank * 104729) % 10007) *
             (rank == 1 ? 1e-6F : 1.0F);
    };
    std::vector<float> values(static_cast<size_t>(kRows * cols));
    for (size_t i = 0; i < values.size(); ++i) values[i] = value(shard.rank, static_cast<int64_t>(i));
    const int64_t gathered_cols = 10 * shard.size + 3;
    const int64_t begin = gathered_cols * shard.rank / shard.size;
    const int64_t end = gathered_cols * (shard.rank + 1) / shard.size;
    std::vector<int32_t> gathered(static_cast<size_t>(kRows * gathered_cols), -1);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = begin; col < end; ++col)
        gathered[static_cast<size_t>(row * gathered_cols + col)] =
            static_cast<int32_t>(row * gathered_cols + col);
    }
    std::vector<int32_t> token = {100 + shard.rank, 7};
    std::vector<int32_t> least(static_cast<size_t>(shard.size) + 1, 1);
    least[static_cast<size_t>(shard.rank)] = 0;
    const Buffer values_there = upload(values);
    const Buffer gathered_there = upload(gathered);
    const Buffer token_there = upload(token);
    const Buffer least_there = upload(least);
    collective.AllReduce(*stream, MatrixView::Dense(values_there.data(), DType::kF32, kRows, cols));
    collective.AllGather(*stream, MatrixView::Dense(gathered_there.data(), DType::kI32, kRows, gathered_cols),
                         begin, end - begin);
    collective.Broadcast(*stream, token_there.data(), token_there.size_bytes());
    riders.Min(*stream, {least_there.as<int32_t>(), least.size()});
    download(values_there, &values);
    download(gathered_there, &gathered);
    download(token_there, &token);
    download(least_there, &least);
    for (size_t i = 0; i < values.size(); ++i) {
      float sum = value(0, static_cast<int64_t>(i));
      for (int rank = 1; rank < shard.size; ++rank) sum += value(rank, static_cast<int64_t>(i));
      ASSERT_EQ(values[i], sum) << i << " of " << values.size();
    }
    std::vector<int32_t> all(gathered.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(gathered, all);
    EXPECT_EQ(token, (std::vector<int32_t>{100, 7}));
    std::vector<int32_t> zeros(least.size(), 0);
    zeros.back() = 1;
    EXPECT_EQ(least, zeros);
  }
  EXPECT_FALSE(group.failure());
}

TEST_P(ProcessesTest, EveryStrategyGivesTheTokensOfOneProcess) {
  constexpr int kRequests = 20;
  constexpr int64_t kTokens = 16;
  const Answers expected = Leads() ? RunInOneProcess(Options(), kRequests, kTokens) : Answers();
  for (const std::string& strategy : Strategies({"gpu-only", "asymmetric", "full-offload", "symmetric",
                                                 "simple-offload", "async", "apex", "auto", "switching"})) {
    EngineOptions tight = Options();
    tight.strategy = strategy;
    tight.gpu_kv_cache = SizeInTokens(384);
    if (strategy != "gpu-only") tight.cpu_kv_cache = SizeInTokens(2048);
    WithEngine(tight, [&](Engine& engine) {
      ExpectSame(RunAll(engine, kRequests, kTokens), expected, strategy, !OnGpus());
      engine.CancelAll();
      const EngineStats stats = engine.Stats();
      EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total) << strategy;
      EXPECT_EQ(stats.cpu_blocks_free, stats.cpu_blocks_total) << strategy;
      EXPECT_EQ(stats.cpu_tier_tokens > 0, strategy != "gpu-only") << strategy;
      std::printf(
          "%-15s %5lu iterations, %5lu tokens, %5lu of them in the cpu tier, %5lu swapped, rode %lu times\n",
          strategy.c_str(), stats.iterations, stats.generation_tokens, stats.cpu_tier_tokens,
          stats.swapped_tokens, stats.rider_visits);
    });
  }
}

// Cohorts are dropped on all of them: neighbours are cancelled, and both tiers are so small that some are
// preempted.
TEST_P(ProcessesTest, TheSameBesideCancels) {
  constexpr int kRequests = 20;
  constexpr int64_t kTokens = 16;
  const Answers expected = Leads() ? RunInOneProcess(Options(), kRequests, kTokens) : Answers();
  for (const std::string strategy : {"asymmetric", "async"}) {
    EngineOptions tight = Options();
    tight.strategy = strategy;
    tight.gpu_kv_cache = SizeInTokens(320);
    tight.cpu_kv_cache = SizeInTokens(640);
    WithEngine(tight, [&](Engine& engine) {
      std::vector<Submitted> cancelled;
      for (int i = 0; i < kRequests; ++i) {
        RequestSpec spec = SpecOf(i, 100);
        spec.prompt_tokens.front() = 299 - i;
        cancelled.push_back(SubmitTo(engine, std::move(spec)));
      }
      cancelled.front().output->WaitForTokens(4);
      for (const Submitted& each : cancelled) engine.Cancel(each.id);
      ExpectSame(RunAll(engine, kRequests, kTokens), expected, strategy, !OnGpus());
      engine.CancelAll();
      EXPECT_EQ(engine.Stats().gpu_blocks_free, engine.Stats().gpu_blocks_total);
      EXPECT_EQ(engine.Stats().cpu_blocks_free, engine.Stats().cpu_blocks_total);
    });
  }
}

TEST_P(ProcessesTest, TheRealModelGivesTheTokensOfOneProcess) {
  const auto path = RealModelPath();
  if (!path) GTEST_SKIP() << "the model file is not here; scripts/fetch_model.sh fetches it";
  if (all_processes->shard().size != 3) GTEST_SKIP() << "its 9 heads are cut in 3";
  constexpr int kRequests = 8;
  constexpr int64_t kTokens = 12;
  EngineOptions options = Options();
  options.model = *path;
  options.tokenizer.clear();
  const Answers expected = Leads() ? RunInOneProcess(options, kRequests, kTokens) : Answers();
  for (const std::string strategy : {"gpu-only", "asymmetric", "async"}) {
    EngineOptions tight = options;
    tight.strategy = strategy;
    tight.gpu_kv_cache = SizeInTokens(384);
    if (strategy != "gpu-only") tight.cpu_kv_cache = SizeInTokens(2048);
    WithEngine(tight, [&](Engine& engine) {
      ExpectSame(RunAll(engine, kRequests, kTokens), expected, strategy, !OnGpus());
      EXPECT_EQ(engine.Stats().cpu_tier_tokens > 0, strategy != "gpu-only") << strategy;
    });
  }
}

// What is wrong in one process alone is said by rank 0; the others know it too.
TEST_P(ProcessesTest, WhatIsWrongElsewhereIsSaidByRank0) {
  if (OnGpus() && all_processes->shard().size > 2) GTEST_SKIP() << "the third waits for the second's GPU";
  EngineOptions options = Options();
  options.processes = all_processes;
  if (all_processes->shard().rank == 1) {
    options.dummy.clear();
    options.model = "/nowhere";
  }
  if (Leads()) {
    const auto engine = Engine::Create(options);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().message.find("shard 1 of " + std::to_string(all_processes->shard().size) + ": "),
              0U)
        << engine.error().message;
    EXPECT_NE(engine.error().message.find("/nowhere"), std::string::npos) << engine.error().message;
    for (int rank = 1; rank < all_processes->shard().size; ++rank) SendEnd(all_processes, rank);
    return;
  }
  const Status followed = FollowRank0(options);
  EXPECT_EQ(followed.ok(), all_processes->shard().rank != 1);
  // Who has failed by itself waits for what rank 0 says.
  if (!followed.ok()) {
    EXPECT_TRUE(IsEnd(all_processes->Receive(0, std::nullopt).value()));
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, ProcessesTest,
                         ::testing::Values(ProcessesMachine{"host"}, ProcessesMachine{"cuda", true},
                                           ProcessesMachine{"cuda", false}),
                         NameOfProcessesMachine);

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  if (!tandem::IsOneOfSeveralProcesses()) {
    std::fprintf(stderr, "%s is started by mpirun\n", argv[0]);
    return 1;
  }
  auto joined = tandem::JoinProcesses({});
  if (!joined.ok()) {
    std::fprintf(stderr, "%s\n", joined.error().message.c_str());
    return 1;
  }
  tandem::all_processes = std::move(joined).value().release();
  // Rank 0 reports. What fails on another rank ends this with an error too. The flag has taken GTEST_OUTPUT
  // before main.
  if (!tandem::Leads()) GTEST_FLAG_SET(output, "");
  ::testing::InitGoogleTest(&argc, argv);
  if (!tandem::Leads()) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int code = RUN_ALL_TESTS();
  tandem::all_processes->Leave();
  return code;
}
