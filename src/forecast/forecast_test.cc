#include "forecast/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forecast/forecast_report.h"
#include "perf/profile_file.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr const char* kProfile = TANDEM_SOURCE_DIR "/tests/fixtures/profiles/llama-3.1-8b_h200_16sm.json";

std::vector<StrategyChoice> Choices(const std::string& text) {
  return ParseStrategyChoices(text, 0).value();
}

ForecastOptions Small() {
  ForecastOptions options;
  options.gpu = "l4";
  options.host = "g5.4xlarge";
  options.model = "llama-3.1-8b";
  options.workload = "synthetic:in=300,out=100";
  options.num_requests = 600;
  options.strategies = Choices("gpu-only,auto");
  return options;
}

TEST(ForecastTest, SaysWhatEveryStrategyMakes) {
  ForecastOptions options = Small();
  options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 4000};
  options.strategies = Choices("gpu-only,full-offload,asymmetric,async,apex,auto");
  const auto machine = DescribeMachine(options);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_EQ(machine->gpu_kv_tokens, 4000);
  EXPECT_EQ(machine->cpu_kv_tokens, (int64_t{32} << 30) / 131'072);
  const auto forecast = PlayForecast(options, *machine);
  ASSERT_TRUE(forecast.ok()) << forecast.error().message;
  ASSERT_EQ(forecast->strategies.size(), 6U);
  EXPECT_GE(forecast->upper_bound, forecast->ideal_gpu_only);
  for (const StrategyForecast& of : forecast->strategies) {
    SCOPED_TRACE(of.strategy);
    EXPECT_GT(of.saturated.output_throughput, 0);
    EXPECT_LE(of.saturated.output_throughput, 1.05 * forecast->upper_bound);
    EXPECT_LE(of.saturated.kv_tokens[0], 4000);
    EXPECT_EQ(of.saturated.kv_tokens[1] > 0, of.strategy != "gpu-only");
    EXPECT_NEAR(of.saturated.share.SumUs(), 1, 1e-9);
    EXPECT_FALSE(of.saturated.limit.empty());
    EXPECT_GT(of.loaded.median_ttft_ms, 0);
    EXPECT_GE(of.loaded.p99_ttft_ms, of.loaded.median_ttft_ms);
    EXPECT_GT(of.loaded.median_tpot_ms, 0);
  }
  // Short of room: the cpu tier pays.
  EXPECT_GT(forecast->strategies.back().saturated.output_throughput,
            1.2 * forecast->strategies.front().saturated.output_throughput);
}

TEST(ForecastTest, ShardsHaveTheRoomOfAllCards) {
  ForecastOptions options = Small();
  options.model = "llama-2-13b";
  const auto one = DescribeMachine(options);
  ASSERT_FALSE(one.ok()) << "26 GB on a card of 24";
  EXPECT_EQ(one.error().code, ErrorCode::kResourceExhausted);
  options.tensor_parallel_size = 2;
  const auto two = DescribeMachine(options);
  ASSERT_TRUE(two.ok()) << two.error().message;
  EXPECT_EQ(two->gpu, "2 x NVIDIA L4");
  EXPECT_DOUBLE_EQ(two->gpu_watts, 2 * 72);
  const double room = 0.9 * 2 * 22.5 * 1024 * 1024 * 1024 - static_cast<double>(two->model.weight_bytes()) -
                      2 * 768.0 * 1024 * 1024;
  EXPECT_NEAR(static_cast<double>(two->gpu_kv_tokens), room / (2 * 2 * 40 * 5120), 64);
  const auto forecast = PlayForecast(options, *two);
  ASSERT_TRUE(forecast.ok()) << forecast.error().message;
  for (const StrategyForecast& of : forecast->strategies) {
    EXPECT_GT(of.saturated.output_throughput, 0);
    EXPECT_LE(of.saturated.output_throughput, 1.05 * forecast->upper_bound) << of.strategy;
  }
  // The same rates hold for all of the host, however many share it.
  options.tensor_parallel_size = 4;
  EXPECT_NEAR(DescribeMachine(options)->cpu_attention_bytes_per_s, two->cpu_attention_bytes_per_s,
              0.02 * two->cpu_attention_bytes_per_s);

  options.tensor_parallel_size = 3;
  const auto uneven = DescribeMachine(options);
  ASSERT_FALSE(uneven.ok());
  EXPECT_EQ(uneven.error().param, "tensor-parallel-size");
  options.model = "llama-3.1-8b";
  options.tensor_parallel_size = 2;
  options.profile = kProfile;
  const auto whole_profile = DescribeMachine(options);
  ASSERT_FALSE(whole_profile.ok());
  EXPECT_THAT(whole_profile.error().message, HasSubstr("of a whole model, and tensor-parallel-size is 2"));
}

TEST(ForecastTest, EnergyIsThatOfTheCardAndTheBusyCores) {
  ForecastOptions options = Small();
  options.host = "2x-gold-6130";
  options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 4000};
  const auto machine = DescribeMachine(options);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_DOUBLE_EQ(machine->watts_per_core, 250.0 / 32);
  const auto forecast = PlayForecast(options, *machine);
  ASSERT_TRUE(forecast.ok()) << forecast.error().message;
  for (const StrategyForecast& of : forecast->strategies) {
    SCOPED_TRACE(of.strategy);
    const SaturatedForecast& saturated = of.saturated;
    ASSERT_TRUE(saturated.joules_per_token.has_value());
    EXPECT_NEAR(*saturated.joules_per_token * saturated.output_throughput,
                72 + 250.0 / 32 * (1 + 28 * saturated.cpu_busy), 1e-6);
  }
  EXPECT_EQ(forecast->strategies.front().saturated.cpu_busy, 0) << "gpu-only";
  EXPECT_THAT(ForecastText(ForecastJson(options, *machine, *forecast, 0)), HasSubstr("J/tok"));
}

TEST(ForecastTest, WithoutTheHostsWattsThereIsNoEnergy) {
  ForecastOptions options = Small();
  options.strategies = Choices("gpu-only");
  auto machine = DescribeMachine(options);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_EQ(machine->watts_per_core, 0) << "nobody publishes the watts of an EPYC 7R32";
  const auto forecast = PlayForecast(options, *machine);
  ASSERT_TRUE(forecast.ok()) << forecast.error().message;
  EXPECT_FALSE(forecast->strategies.front().saturated.joules_per_token.has_value());
  const nlohmann::ordered_json report = ForecastJson(options, *machine, *forecast, 0);
  EXPECT_TRUE(report["strategies"][0]["joules_per_token"].is_null());
  EXPECT_THAT(ForecastText(report), testing::Not(HasSubstr("J/tok")));
  options.watts_per_core = 5;
  machine = DescribeMachine(options);
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->watts_per_core, 5);
}

// A plan from a profile is the simulation with the profile's costs, and nothing of the tables.
TEST(ForecastTest, OfAProfileIsWhatTheSimulationSays) {
  ForecastOptions options = Small();
  options.gpu = options.host = "";
  options.profile = kProfile;
  options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 26'400};
  options.cpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 100'000};
  options.workload = "synthetic:in=1000,out=200";
  const auto machine = DescribeMachine(options);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  const auto profile = ReadStoredProfile(kProfile);
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(machine->costs.measurements(), profile->costs.measurements());
  EXPECT_EQ(profile->key.device, "cuda: NVIDIA H200, a slice of 16 of 132 SMs");
  const auto forecast = PlayForecast(options, *machine);
  ASSERT_TRUE(forecast.ok()) << forecast.error().message;
  const Workload workload = LoadWorkload(options.workload, options.num_requests, options.seed).value();
  for (const StrategyForecast& of : forecast->strategies) {
    const auto played =
        PlaySaturated(Choices(of.strategy).front(), *machine, profile->costs, workload.requests);
    ASSERT_TRUE(played.ok());
    EXPECT_DOUBLE_EQ(of.saturated.output_throughput, played->output_throughput) << of.strategy;
  }
  // 989 was measured on the machine of the profile (docs/lab_notes/hybrid.md, call 12).
  EXPECT_NEAR(forecast->strategies[0].saturated.output_throughput, 989, 0.1 * 989);
}

// A queue that ends within the window would count the end of the work: 4 to 7 % here.
TEST(ForecastTest, IsOfASteadyStateHoweverFewRequestsThereAre) {
  ForecastOptions options = Small();
  options.gpu = "h100";
  options.host = "hgx-h100";
  options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 26'400};
  options.workload = "osc";
  options.strategies = Choices("gpu-only");
  std::vector<double> rates;
  for (const int64_t count : {1'000, 2'000, 12'000}) {
    options.num_requests = count;
    const auto machine = DescribeMachine(options);
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    const auto forecast = PlayForecast(options, *machine);
    ASSERT_TRUE(forecast.ok()) << forecast.error().message;
    rates.push_back(forecast->gpu_only);
  }
  EXPECT_NEAR(rates[0], rates[2], 0.02 * rates[2]);
  EXPECT_NEAR(rates[1], rates[2], 0.02 * rates[2]);
}

// Prompts of 1,000 come in four chunks of 256 in place of one, each of which reads the weights.
TEST(ForecastTest, SmallerChunksMakeFewerTokens) {
  ForecastOptions options = Small();
  options.workload = "synthetic:in=1000,out=50";
  options.strategies = Choices("gpu-only");
  options.max_num_seqs = 1000;
  const auto whole = DescribeMachine(options);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->max_num_batched_tokens, 2048);
  EXPECT_EQ(whole->max_num_seqs, 1000);
  options.max_num_batched_tokens = 256;
  const auto chunks = DescribeMachine(options);
  ASSERT_TRUE(chunks.ok()) << chunks.error().message;
  EXPECT_EQ(chunks->max_num_batched_tokens, 256);
  EXPECT_EQ(chunks->max_num_seqs, 256) << "as the engine does";
  const auto of_whole = PlayForecast(options, *whole);
  const auto of_chunks = PlayForecast(options, *chunks);
  ASSERT_TRUE(of_whole.ok()) << of_whole.error().message;
  ASSERT_TRUE(of_chunks.ok()) << of_chunks.error().message;
  EXPECT_LT(of_chunks->strategies[0].saturated.output_throughput,
            of_whole->strategies[0].saturated.output_throughput);
  EXPECT_EQ(ForecastJson(options, *chunks, *of_chunks, 0)["max_num_batched_tokens"], 256);
}

// APEX's own has one cohort: the CPU rests while the GPU gathers it, which staggered ones do not let it.
TEST(ForecastTest, OneCohortMakesFewerTokensThanStaggeredOnes) {
  ForecastOptions options = Small();
  options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 4000};
  options.strategies = Choices("async:async-cohorts=1,async");
  const auto machine = DescribeMachine(options);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  const auto forecast = PlayForecast(options, *machine);
  ASSERT_TRUE(forecast.ok()) << forecast.error().message;
  ASSERT_EQ(forecast->strategies.size(), 2U);
  EXPECT_EQ(forecast->strategies[0].strategy, "async:async-cohorts=1");
  EXPECT_GT(forecast->gpu_only, 0) << "though nobody asked for it";
  const nlohmann::ordered_json report = ForecastJson(options, *machine, *forecast, 0);
  EXPECT_DOUBLE_EQ(report["strategies"][1]["over_gpu_only"].get<double>(),
                   forecast->strategies[1].saturated.output_throughput / forecast->gpu_only);
  EXPECT_LT(forecast->strategies[0].saturated.output_throughput,
            forecast->strategies[1].saturated.output_throughput);
  EXPECT_LT(forecast->strategies[0].saturated.cpu_busy, forecast->strategies[1].saturated.cpu_busy);
}

TEST(ForecastTest, RefusesInOneSentence) {
  const auto refused = [](const ForecastOptions& options) {
    const auto machine = DescribeMachine(options);
    if (!machine.ok()) return machine.error();
    const auto forecast = PlayForecast(options, *machine);
    return forecast.ok() ? Error{} : forecast.error();
  };
  ForecastOptions options = Small();
  options.gpu = "gtx-970";
  EXPECT_EQ(refused(options).param, "gpu");
  options = Small();
  options.host = "toaster";
  EXPECT_EQ(refused(options).param, "host");
  options = Small();
  options.model = "llama-3.1-70b";
  EXPECT_EQ(refused(options).code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused(options).message, HasSubstr("try llama-3.1-70b:int4 or a larger card"));
  options = Small();
  options.workload = "nonsense";
  EXPECT_EQ(refused(options).param, "workload");
  options = Small();
  options.profile = kProfile;
  options.model = "llama-2-7b";
  EXPECT_EQ(refused(options).param, "profile");
  options.profile = "/nowhere.json";
  EXPECT_EQ(refused(options).code, ErrorCode::kNotFound);
}

TEST(ForecastTest, ReportHasSweepsAndTokensADollar) {
  ForecastOptions options = Small();
  options.strategies = Choices("gpu-only,asymmetric");
  options.num_requests = 300;
  options.sweep = true;
  const auto machine = DescribeMachine(options);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  const auto forecast = PlayForecast(options, *machine);
  ASSERT_TRUE(forecast.ok()) << forecast.error().message;
  const nlohmann::ordered_json report = ForecastJson(options, *machine, *forecast, 0.5);
  EXPECT_TRUE(report.at("simulated").get<bool>());
  const auto& first = report.at("strategies").at(0);
  EXPECT_DOUBLE_EQ(first.at("output_tokens_per_dollar").get<double>(),
                   first.at("output_throughput").get<double>() * 3600 / 0.5);
  // More load, no shorter waiting; more bandwidth, no lower bound.
  const auto& load = report.at("load_sweep");
  ASSERT_EQ(load.size(), 18U);
  EXPECT_GT(load.at(8).at("median_ttft_ms").get<double>(), load.at(0).at("median_ttft_ms").get<double>());
  const auto& bandwidth = report.at("host_bandwidth_sweep");
  ASSERT_EQ(bandwidth.size(), 8U);
  EXPECT_GE(bandwidth.at(7).at("upper_bound_throughput"), bandwidth.at(0).at("upper_bound_throughput"));
  EXPECT_DOUBLE_EQ(bandwidth.at(0).at("gpu_only_throughput").get<double>(), forecast->gpu_only);
  const std::string text = ForecastText(report);
  EXPECT_THAT(text, HasSubstr("GPU        NVIDIA L4\n"));
  EXPECT_THAT(text, HasSubstr("latency against load"));
  EXPECT_THAT(text, HasSubstr("tok/$"));
}

}  // namespace
}  // namespace tandem
