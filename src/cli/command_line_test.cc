#include "cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "policy/strategy.h"
#include "simd/cpu_isa.h"

namespace tandem {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;

CommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tandem");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

// The exit code, or -1 if the arguments make a command.
int ExitCode(std::vector<const char*> arguments) {
  const CommandLine parsed = Parse(std::move(arguments));
  return std::holds_alternative<int>(parsed) ? std::get<int>(parsed) : -1;
}

TEST(CommandLine, ServeHasTheDocumentedDefaults) {
  const CommandLine parsed = Parse({"serve", "/models/SmolLM2.Q4_1.gguf"});
  const auto* options = std::get_if<ServeOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->server.http.host, "127.0.0.1");
  EXPECT_EQ(options->server.http.port, 8000);
  EXPECT_FALSE(options->server.special_tokens_in_content);
  EXPECT_FALSE(options->server.reject_unknown_fields);
  EXPECT_EQ(options->server.default_max_tokens, 0);
  EXPECT_EQ(options->server.served_model_name, "SmolLM2.Q4_1");
  EXPECT_EQ(options->server.http.max_body_bytes, size_t{32} << 20);
  EXPECT_EQ(options->engine.device, "host");
  EXPECT_FALSE(options->engine.dtype.has_value());
  EXPECT_FALSE(options->engine.gpu_kv_cache.has_value());
}

TEST(CommandLine, ReadsEveryFlagOfServe) {
  const CommandLine parsed = Parse({"serve",
                                    "m",
                                    "--host",
                                    "0.0.0.0",
                                    "--port",
                                    "0",
                                    "--api-key",
                                    "k",
                                    "--special-tokens-in-content",
                                    "--default-max-tokens",
                                    "77",
                                    "--unknown-fields",
                                    "reject",
                                    "--dtype",
                                    "fp32",
                                    "--max-model-len",
                                    "512",
                                    "--max-num-seqs",
                                    "3",
                                    "--max-num-batched-tokens",
                                    "64",
                                    "--max-num-queued-reqs",
                                    "5",
                                    "--seed",
                                    "7",
                                    "--cpu-threads",
                                    "2",
                                    "--gpu-kv-cache",
                                    "640tok",
                                    "--cpu-kv-cache",
                                    "1MiB",
                                    "--kv-transit",
                                    "131072tok",
                                    "--served-model-name",
                                    "name",
                                    "--strategy",
                                    "gpu-only",
                                    "--no-async-scheduling",
                                    "--no-cpu-trial",
                                    "--without",
                                    "fa3,graphs",
                                    "--max-itl-ms",
                                    "80",
                                    "--max-tpot-ms",
                                    "62.5",
                                    "--async-cohorts",
                                    "1",
                                    "--cpu-attention-order",
                                    "arming",
                                    "--cpu-attention-isa",
                                    "avx2",
                                    "--log-level",
                                    "warn"});
  const auto* options = std::get_if<ServeOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->engine.dtype, DType::kF32);
  EXPECT_EQ(options->engine.max_model_len, 512);
  EXPECT_EQ(options->engine.max_num_seqs, 3);
  EXPECT_EQ(options->engine.max_num_batched_tokens, 64);
  EXPECT_EQ(options->engine.max_num_queued_reqs, 5);
  EXPECT_EQ(options->engine.seed, 7U);
  EXPECT_EQ(options->engine.cpu_threads, 2);
  EXPECT_EQ(options->engine.gpu_kv_cache->amount, 640);
  EXPECT_EQ(options->engine.gpu_kv_cache->unit, CacheSize::Unit::kTokens);
  EXPECT_EQ(options->engine.cpu_kv_cache->amount, 1 << 20);
  EXPECT_EQ(options->engine.kv_transit->amount, 131'072);
  EXPECT_EQ(options->engine.strategy, "gpu-only");
  EXPECT_FALSE(options->engine.async_scheduling);
  EXPECT_FALSE(options->engine.cpu_trial);
  EXPECT_EQ(options->engine.without, (std::vector<std::string>{"fa3", "graphs"}));
  EXPECT_EQ(options->engine.max_itl_ms, 80);
  EXPECT_EQ(options->engine.max_tpot_ms, 62.5);
  EXPECT_EQ(options->engine.async_cohorts, 1);
  EXPECT_EQ(options->engine.cpu_attention_order, "arming");
  EXPECT_EQ(options->engine.cpu_attention_isa, "avx2");
  ASSERT_EQ(options->server.access.keys.size(), 1U);
  EXPECT_EQ(options->server.access.keys[0].key, "k");
  EXPECT_TRUE(options->server.special_tokens_in_content);
  EXPECT_TRUE(options->server.reject_unknown_fields);
  EXPECT_EQ(options->server.default_max_tokens, 77);
  EXPECT_EQ(options->server.served_model_name, "name");
}

ServeOptions ServeOptionsOf(std::vector<const char*> arguments) {
  const CommandLine parsed = Parse(std::move(arguments));
  const auto* options = std::get_if<ServeOptions>(&parsed);
  EXPECT_NE(options, nullptr);
  return options == nullptr ? ServeOptions() : *options;
}

TEST(CommandLine, AModelMayHaveSeveralNames) {
  using Names = std::vector<std::string>;
  const std::string folder = testing::TempDir();
  const std::vector<std::vector<const char*>> spellings = {
      {"serve", "m", "--served-model-name", "A", "B", "C"},
      {"serve", "m", "--served-model-name", "A", "B", "C", "--port", "0"},
      {"serve", "--served-model-name", "A", "B", "C", "--port", "0", "m"},
      {"serve", "m", "--served-model-name", "A", "--port", "0", "--served-model-name", "B", "C"},
      {"serve", "m", "--served-model-name=A,B,C"},
      {"serve", "m", "--served-model-name", "A", "B", "A", "C", "B"},
      {"serve", "--dummy", "tiny", "--served-model-name", "A", "B", "C"},
      // The flag takes the model too, which nobody named otherwise.
      {"serve", "--served-model-name", "A", "B", "C", folder.c_str()}};
  for (const auto& spelling : spellings) {
    const ServeOptions options = ServeOptionsOf(spelling);
    EXPECT_EQ(options.server.served_model_name, "A");
    EXPECT_EQ(options.server.model_aliases, (Names{"B", "C"}));
    EXPECT_EQ(options.engine.served_model_name, "A");
  }
  EXPECT_EQ(ServeOptionsOf(spellings.front()).engine.model, "m");
  EXPECT_EQ(ServeOptionsOf(spellings[2]).engine.model, "m");
  EXPECT_EQ(ServeOptionsOf(spellings.back()).engine.model, folder);
  setenv("TANDEM_SERVED_MODEL_NAME", "A,B", 1);
  const ServeOptions of_environment = ServeOptionsOf({"serve", "m"});
  unsetenv("TANDEM_SERVED_MODEL_NAME");
  EXPECT_EQ(of_environment.server.served_model_name, "A");
  EXPECT_EQ(of_environment.server.model_aliases, Names{"B"});
  EXPECT_EQ(ServeOptionsOf({"serve", "m", "--served-model-name", ""}).server.served_model_name, "m");
}

TEST(CommandLine, TakesEveryStrategyThereIs) {
  for (const std::string_view name : StrategyNames()) {
    const CommandLine parsed = Parse({"serve", "m", "--strategy", name.data()});
    const auto* options = std::get_if<ServeOptions>(&parsed);
    ASSERT_NE(options, nullptr) << name;
    EXPECT_EQ(options->engine.strategy, name);
  }
}

TEST(CommandLine, FlagsWinOverTheEnvironment) {
  setenv("TANDEM_MAX_NUM_SEQS", "9", 1);
  const CommandLine from_environment = Parse({"serve", "m"});
  const CommandLine from_flag = Parse({"serve", "m", "--max-num-seqs", "4"});
  unsetenv("TANDEM_MAX_NUM_SEQS");
  EXPECT_EQ(std::get<ServeOptions>(from_environment).engine.max_num_seqs, 9);
  EXPECT_EQ(std::get<ServeOptions>(from_flag).engine.max_num_seqs, 4);
}

TEST(CommandLine, TheModelMayComeFromTheEnvironment) {
  setenv("TANDEM_MODEL", "/models/a.gguf", 1);
  const CommandLine from_environment = Parse({"serve"});
  const CommandLine from_argument = Parse({"serve", "/models/b.gguf"});
  setenv("TANDEM_MODEL", "", 1);
  const int code_of_empty = ExitCode({"serve"});
  unsetenv("TANDEM_MODEL");
  ASSERT_TRUE(std::holds_alternative<ServeOptions>(from_environment));
  EXPECT_EQ(std::get<ServeOptions>(from_environment).engine.model, "/models/a.gguf");
  EXPECT_EQ(std::get<ServeOptions>(from_argument).engine.model, "/models/b.gguf");
  EXPECT_EQ(code_of_empty, 2);
}

TEST(CommandLine, WrongUsageIsExitCodeTwo) {
  EXPECT_EQ(ExitCode({}), 2);
  EXPECT_EQ(ExitCode({"fly"}), 2);
  EXPECT_EQ(ExitCode({"serve"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--port", "70000"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--no-such-flag"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--dtype", "int3"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--gpu-kv-cache", "lots"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--gpu-kv-cache", "0"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--device", "gpu"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--dummy", "tiny"}), 2);
  EXPECT_EQ(ExitCode({"serve"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--strategy", "fastest"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--max-tpot-ms", "-1"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--async-cohorts", "-1"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--cpu-attention-order", "random"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--gpu-sm-limit", "8"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--max-num-seqs", "0"}), 2);
  EXPECT_EQ(ExitCode({"generate", "m"}), 2);
}

TEST(CommandLine, PlanReadsItsFlags) {
  const CommandLine parsed = Parse({"plan",
                                    "--gpu",
                                    "T4",
                                    "--host",
                                    "g4dn.4xlarge",
                                    "--model",
                                    "llama-2-7b",
                                    "--workload",
                                    "osc",
                                    "--gpu-kv-cache",
                                    "860tok",
                                    "--host-memory",
                                    "32GiB",
                                    "--host-gb-per-s",
                                    "40",
                                    "--strategies",
                                    "gpu-only,async:async-cohorts=1,auto",
                                    "--max-num-batched-tokens",
                                    "256",
                                    "--async-cohorts",
                                    "3",
                                    "--price",
                                    "0.5",
                                    "--sweep",
                                    "--json",
                                    "f"});
  const auto* options = std::get_if<PlanOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->forecast.gpu, "T4");
  EXPECT_EQ(options->forecast.gpu_kv_cache->amount, 860);
  EXPECT_FALSE(options->forecast.cpu_kv_cache.has_value());
  EXPECT_FALSE(options->forecast.rate.has_value());
  EXPECT_EQ(options->forecast.host_memory_bytes, int64_t{32} << 30);
  EXPECT_EQ(options->forecast.host_bytes_per_s, 40e9);
  ASSERT_EQ(options->forecast.strategies.size(), 3U);
  EXPECT_EQ(options->forecast.strategies[1].name, "async");
  EXPECT_EQ(options->forecast.strategies[1].async_cohorts, 1);
  EXPECT_EQ(options->forecast.strategies[2].text, "auto");
  EXPECT_EQ(options->forecast.strategies[2].async_cohorts, 3);
  EXPECT_EQ(options->forecast.max_num_batched_tokens, 256);
  EXPECT_TRUE(options->forecast.sweep);
  EXPECT_EQ(options->price, 0.5);
  EXPECT_EQ(options->json, "f");

  EXPECT_EQ(ExitCode({"plan", "--gpu", "t4", "--workload", "osc"}), 2) << "of which model?";
  const auto with = [](const char* flag, const char* value) {
    return ExitCode({"plan", "--model", "m", "--workload", "osc", flag, value});
  };
  EXPECT_EQ(with("--host", "grace"), -1);
  EXPECT_EQ(with("--gpu-kv-cache", "0"), 2);
  EXPECT_EQ(with("--host-memory", "many"), 2);
  EXPECT_EQ(with("--strategies", "gpu-only,none-such"), 2);
  EXPECT_EQ(with("--strategies", ""), 2);
  EXPECT_EQ(with("--max-num-batched-tokens", "-1"), 2);
  EXPECT_EQ(with("--async-cohorts", "-1"), 2);
  EXPECT_EQ(with("--price", "-1"), 2);
  EXPECT_EQ(with("--gpu-memory-utilization", "1.5"), 2);
}

// One sentence that lists what there is.
TEST(CommandLine, PlanNamesTheMachinesThatThereAre) {
  PlanOptions options;
  options.forecast.gpu = "gtx-970";
  options.forecast.host = "grace";
  options.forecast.model = "tiny";
  options.forecast.workload = "osc";
  const Status said = PlanMachine(options);
  ASSERT_FALSE(said.ok());
  EXPECT_THAT(said.error().message, HasSubstr("there is no gpu 'gtx-970' in the table; there are t4, v100,"));
  options.forecast.gpu = "l4";
  options.json = "/nowhere/file";
  EXPECT_EQ(PlanMachine(options).error().param, "json");
}

TEST(CommandLine, SaysWhichCommandThereIsNot) {
  const auto said = [](std::vector<const char*> arguments) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(ExitCode(std::move(arguments)), 2);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said({"frobnicate"}),
            "tandem: there is no command 'frobnicate'; there are: serve, generate, bench, profile, plan, "
            "doctor "
            "(see tandem --help)\n");
  EXPECT_EQ(said({"bench", "frobnicate"}),
            "tandem: there is no command 'bench frobnicate'; there are: offline, online, compare (see tandem "
            "--help)\n");
  EXPECT_THAT(said({"bench"}), HasSubstr("bench needs a command; there are: offline, online, compare"));
  EXPECT_THAT(said({}), HasSubstr("needs a command; there are: serve"));
}

TEST(CommandLine, HelpAndVersionAreExitCodeZero) {
  EXPECT_EQ(ExitCode({"--version"}), 0);
  EXPECT_EQ(ExitCode({"--help"}), 0);
  EXPECT_EQ(ExitCode({"serve", "--help"}), 0);
}

TEST(CommandLine, VersionSaysWhatTheProgramWasBuiltFromAndFor) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(ExitCode({"--version"}), 0);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, MatchesRegex("tandem [0-9]+\\.[0-9]+\\.[0-9]+\n"
                                 "commit: [^\n]+\n"
                                 "backends: host[^\n]*\n"
                                 "instruction sets: portable[^\n]*\n"
                                 "of this machine: portable[^\n]*\n"));
  // What runs was compiled, and the best of it is named.
  const size_t machine = text.find("of this machine: ");
  ASSERT_NE(machine, std::string::npos);
  if (BestCpuIsa() != CpuIsa::kAvx512Ymm) {
    EXPECT_THAT(text.substr(machine), EndsWith(std::string(CpuIsaName(BestCpuIsa())) + "\n"));
  }
  EXPECT_THAT(text.substr(0, machine), HasSubstr(CpuIsaName(CompiledCpuIsas().back())));
  EXPECT_EQ(text.find("cuda") != std::string::npos, !CudaArchitectures().empty());
}

TEST(CommandLine, ServeHandsTheVersionToTheServer) {
  const CommandLine parsed = Parse({"serve", "m"});
  ASSERT_TRUE(std::holds_alternative<ServeOptions>(parsed));
  EXPECT_EQ(std::get<ServeOptions>(parsed).server.version, ProjectVersion());
  EXPECT_FALSE(ProjectVersion().empty());
}

TEST(CommandLine, ReadsGenerateAndDoctor) {
  const CommandLine generate =
      Parse({"generate", "m", "-p", "Hi", "-n", "5", "--temperature", "0", "--chat"});
  const auto* options = std::get_if<GenerateOptions>(&generate);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->prompt, "Hi");
  EXPECT_EQ(options->max_tokens, 5);
  EXPECT_EQ(options->temperature, 0.0);
  EXPECT_TRUE(options->chat);
  const CommandLine doctor = Parse({"doctor", "--json"});
  ASSERT_TRUE(std::holds_alternative<DoctorOptions>(doctor));
  EXPECT_TRUE(std::get<DoctorOptions>(doctor).json);
}

TEST(CommandLine, ReadsQuantization) {
  const CommandLine parsed = Parse({"serve", "m", "--quantization", "int8"});
  const auto* options = std::get_if<ServeOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->engine.quantization, Quantization::kInt8);
  EXPECT_EQ(std::get<ServeOptions>(Parse({"serve", "m"})).engine.quantization, Quantization::kAuto);
  EXPECT_EQ(ExitCode({"serve", "m", "--quantization", "int3"}), 2);
}

TEST(CommandLine, ReadsBenchOffline) {
  const CommandLine parsed =
      Parse({"bench", "offline", "m", "--workload", "synthetic:in=5,out=6", "--num-requests", "7",
             "--num-warmup", "2", "--json", "it's.json", "--seed", "9"});
  const auto* options = std::get_if<BenchOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->engine.model, "m");
  EXPECT_EQ(options->engine.seed, 9U);
  EXPECT_EQ(options->workload, "synthetic:in=5,out=6");
  EXPECT_EQ(options->num_requests, 7);
  EXPECT_EQ(options->num_warmup, 2);
  EXPECT_EQ(options->json, "it's.json");
  EXPECT_EQ(options->command,
            "tandem bench offline m --workload synthetic:in=5,out=6 --num-requests 7 --num-warmup 2 --json "
            "'it'\\''s.json' --seed 9");
  EXPECT_EQ(options->duration_s, 0);
  EXPECT_FALSE(options->steady_start);
  EXPECT_FALSE(options->closed_loop);
  const CommandLine window = Parse({"bench", "offline", "m", "--workload", "reasoning", "--steady-start",
                                    "--duration", "20", "--warm-up", "2.5"});
  ASSERT_TRUE(std::holds_alternative<BenchOptions>(window));
  EXPECT_TRUE(std::get<BenchOptions>(window).steady_start);
  EXPECT_EQ(std::get<BenchOptions>(window).duration_s, 20);
  EXPECT_EQ(std::get<BenchOptions>(window).warm_up_s, 2.5);
  EXPECT_EQ(std::get<BenchOptions>(window).watts_per_core, 0);
  const CommandLine metered =
      Parse({"bench", "offline", "m", "--workload", "osc", "--watts-per-core", "4.5"});
  ASSERT_TRUE(std::holds_alternative<BenchOptions>(metered));
  EXPECT_EQ(std::get<BenchOptions>(metered).watts_per_core, 4.5);
  const CommandLine dummy = Parse({"bench", "offline", "--dummy", "tiny", "--workload", "osc"});
  ASSERT_TRUE(std::holds_alternative<BenchOptions>(dummy));
  EXPECT_EQ(std::get<BenchOptions>(dummy).engine.dummy, "tiny");
}

TEST(CommandLine, ReadsBenchCompare) {
  const CommandLine parsed = Parse({"bench", "compare", "m", "--workload", "osc", "--workload", "azure-conv",
                                    "--strategies", "gpu-only,async:async-cohorts=1,async", "--async-cohorts",
                                    "5", "--duration", "4", "--repeat", "3"});
  const auto* options = std::get_if<BenchCompareOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->repeat, 3);
  EXPECT_EQ(options->run.engine.model, "m");
  EXPECT_EQ(options->workloads, (std::vector<std::string>{"osc", "azure-conv"}));
  ASSERT_EQ(options->strategies.size(), 3U);
  EXPECT_EQ(options->strategies[1].async_cohorts, 1);
  EXPECT_EQ(options->strategies[2].async_cohorts, 5);
  EXPECT_EQ(options->run.duration_s, 4);
  EXPECT_TRUE(options->rates.empty());
  const CommandLine online = Parse({"bench", "compare", "m", "--workload", "osc", "--rate", "2", "--rate",
                                    "4.5", "--deadline", "9", "--cool-down", "1"});
  ASSERT_TRUE(std::holds_alternative<BenchCompareOptions>(online));
  EXPECT_EQ(std::get<BenchCompareOptions>(online).rates, (std::vector<double>{2, 4.5}));
  EXPECT_EQ(std::get<BenchCompareOptions>(online).deadline_s, 9);
  EXPECT_EQ(std::get<BenchCompareOptions>(online).cool_down_s, 1);
  EXPECT_EQ(std::get<BenchCompareOptions>(online).repeat, 1);
  EXPECT_EQ(ExitCode({"bench", "compare", "m", "--workload", "osc", "--repeat", "0"}), 2);
  EXPECT_EQ(ExitCode({"bench", "compare", "m", "--workload", "osc", "--rate", "0"}), 2);
  EXPECT_EQ(ExitCode({"bench", "compare", "m", "--workload", "osc", "--deadline", "9"}), 2);
  EXPECT_EQ(ExitCode({"bench", "compare", "m", "--workload", "osc", "--rate", "2", "--steady-start"}), 2);
  EXPECT_EQ(ExitCode({"bench", "compare", "m"}), 2);
  EXPECT_EQ(ExitCode({"bench", "compare", "m", "--workload", "osc", "--strategies", "fastest"}), 2);
  EXPECT_EQ(ExitCode({"bench", "compare", "m", "--workload", "osc", "--strategy", "async"}), 2);
}

TEST(CommandLine, WrongUsageOfBenchIsExitCodeTwo) {
  EXPECT_EQ(ExitCode({"bench"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "m"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "m", "--workload", "osc", "--num-requests", "0"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "--workload", "osc"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "m", "--workload", "osc", "--duration", "-1"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "m", "--workload", "osc", "--warm-up", "1"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "m", "--workload", "osc", "--duration", "5", "--warm-up", "5"}), 2);
}

TEST(CommandLine, ReadsBenchOnline) {
  const CommandLine parsed =
      Parse({"bench", "online", "m", "--workload", "osc", "--rate", "2.5", "--seed", "9"});
  const auto* options = std::get_if<BenchOnlineOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->engine.model, "m");
  EXPECT_EQ(options->engine.seed, 9U);
  EXPECT_EQ(options->arrivals.rate, 2.5);
  EXPECT_FALSE(options->arrivals.kind.has_value());
  EXPECT_EQ(options->num_requests, 0);
  EXPECT_EQ(options->run.max_concurrency, 0);
  EXPECT_EQ(options->run.warm_up_s, 0);
  EXPECT_EQ(options->command, "tandem bench online m --workload osc --rate 2.5 --seed 9");
  const CommandLine server = Parse({"bench",
                                    "online",
                                    "--url",
                                    "http://localhost:8000",
                                    "--served-model-name",
                                    "name",
                                    "--api-key",
                                    "k",
                                    "--vocab-size",
                                    "1000",
                                    "--workload",
                                    "azure-conv",
                                    "--arrivals",
                                    "trace",
                                    "--time-scale",
                                    "0.5",
                                    "--max-concurrency",
                                    "8",
                                    "--duration",
                                    "20",
                                    "--warm-up",
                                    "2",
                                    "--cool-down",
                                    "3",
                                    "--deadline",
                                    "30"});
  const auto* online = std::get_if<BenchOnlineOptions>(&server);
  ASSERT_NE(online, nullptr) << "a server needs no model";
  EXPECT_EQ(online->url, "http://localhost:8000");
  EXPECT_EQ(online->engine.served_model_name, "name");
  EXPECT_EQ(online->api_key, "k");
  EXPECT_EQ(online->vocab_size, 1000);
  EXPECT_EQ(online->arrivals.kind, ArrivalKind::kTrace);
  EXPECT_EQ(online->arrivals.time_scale, 0.5);
  EXPECT_EQ(online->run.max_concurrency, 8);
  EXPECT_EQ(online->run.duration_s, 20);
  EXPECT_EQ(online->run.warm_up_s, 2);
  EXPECT_EQ(online->run.cool_down_s, 3);
  EXPECT_EQ(online->run.deadline_s, 30);
  setenv("TANDEM_RATE", "inf", 1);
  const CommandLine from_environment = Parse({"bench", "online", "m", "--workload", "osc"});
  unsetenv("TANDEM_RATE");
  EXPECT_EQ(std::get<BenchOnlineOptions>(from_environment).arrivals.rate,
            std::numeric_limits<double>::infinity());
}

TEST(CommandLine, ReadsTheSearchForARate) {
  std::vector<const char*> words = {"bench", "online", "m", "--workload", "osc", "--find-rate-at-latency",
                                    "0.5"};
  const auto with = [&](std::vector<const char*> more) {
    std::vector<const char*> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const CommandLine parsed = Parse(with({"--rate", "2", "--duration", "30"}));
  const auto* options = std::get_if<BenchOnlineOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->find_rate_at_latency_s, 0.5);
  EXPECT_EQ(ExitCode(with({"--duration", "30"})), 2) << "no rate to begin with";
  EXPECT_EQ(ExitCode(with({"--rate", "inf", "--duration", "30"})), 2);
  EXPECT_EQ(ExitCode(with({"--rate", "2"})), 2) << "no duration";
  EXPECT_EQ(ExitCode(with({"--rate", "2", "--duration", "30", "--arrivals", "trace"})), 2);
  EXPECT_EQ(ExitCode(with({"--rate", "2", "--duration", "30", "--max-concurrency", "4"})), 2);
  words.back() = "0";
  EXPECT_EQ(ExitCode(with({"--rate", "2", "--duration", "30"})), 2);
}

// What is said of wrong usage.
std::string UsageErrorOf(std::vector<const char*> arguments) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(ExitCode(std::move(arguments)), 2);
  return testing::internal::GetCapturedStderr();
}

TEST(CommandLine, NamesThatLeaveNoModelAreWrongUsage) {
  EXPECT_THAT(UsageErrorOf({"serve", "--served-model-name", "A"}), HasSubstr("--model: name a model"));
  EXPECT_THAT(UsageErrorOf({"serve", "--served-model-name", "A", "no/such.gguf"}),
              HasSubstr("--model: name a model before --served-model-name or after its names, of which the "
                        "last, 'no/such.gguf', is no file or folder"));
}

TEST(CommandLine, AWrongRopeScalingIsWrongUsage) {
  EXPECT_THAT(UsageErrorOf({"serve", "m", "--rope-scaling", "dynamic:2"}),
              HasSubstr("--rope-scaling: the settings: RoPE type 'dynamic' is not supported"));
  EXPECT_EQ(ServeOptionsOf({"serve", "m", "--rope-scaling", "yarn:4"}).engine.rope_scaling->factor, 4.0);
  EXPECT_FALSE(ServeOptionsOf({"serve", "m"}).engine.rope_scaling.has_value());
}

TEST(CommandLine, WrongUsageOfBenchOnlineNamesTheFlag) {
  const auto error = [](std::vector<const char*> flags) {
    std::vector<const char*> arguments = {"bench", "online", "--workload", "osc"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return UsageErrorOf(std::move(arguments));
  };
  EXPECT_THAT(error({}), HasSubstr("--model: name a model"));
  EXPECT_THAT(error({"m", "--rate", "fast"}), HasSubstr("--rate: 'fast' is neither a number nor inf"));
  EXPECT_THAT(error({"m", "--rate", "5x"}), HasSubstr("--rate: '5x'"));
  EXPECT_THAT(error({"m", "--rate", "0"}), HasSubstr("--rate: 0 is no number of requests a second"));
  EXPECT_THAT(error({"m", "--arrivals", "bursts"}), HasSubstr("--arrivals"));
  EXPECT_THAT(error({"m", "--time-scale", "0"}), HasSubstr("--time-scale"));
  EXPECT_THAT(error({"m", "--arrivals", "poisson", "--time-scale", "2"}), HasSubstr("--time-scale: only"));
  EXPECT_THAT(error({"m", "--rate", "1", "--time-scale", "2"}), HasSubstr("not both"));
  EXPECT_THAT(error({"m", "--vocab-size", "5"}), HasSubstr("--vocab-size: an engine knows"));
  EXPECT_THAT(error({"m", "--extra-body", "{}"}), HasSubstr("--extra-body: these are fields of requests"));
  EXPECT_THAT(error({"--url", "http://host", "--extra-body", "[1]"}),
              HasSubstr("--extra-body: this is not a JSON object"));
  EXPECT_THAT(error({"m", "--deadline", "-1"}), HasSubstr("--deadline"));
  EXPECT_THAT(error({"m", "--max-concurrency", "-1"}), HasSubstr("--max-concurrency"));
  EXPECT_THAT(error({"--url", "http://host", "--ssl-ca-certs", "ca.crt"}),
              HasSubstr("--ssl-ca-certs: this is for a --url with https://"));
  EXPECT_THAT(error({"--url", "http://host", "--watts-per-core", "5"}),
              HasSubstr("--watts-per-core: what a server (--url) uses is not known here"));
  EXPECT_THAT(error({"--url", "host:8000"}), HasSubstr("--url: 'host:8000' does not begin with http://"));
  EXPECT_THAT(error({"m", "--dummy", "tiny", "--url", "http://host"}), HasSubstr("--dummy were both given"));
}

TEST(DefaultModelName, IsTheLastPartOfThePath) {
  EXPECT_EQ(DefaultModelName("/a/b/Model.Q4_1.gguf"), "Model.Q4_1");
  EXPECT_EQ(DefaultModelName("/a/Qwen2.5-0.5B/"), "Qwen2.5-0.5B");
  EXPECT_EQ(DefaultModelName("name"), "name");
}

TEST(CommandLine, ReadsProfile) {
  const CommandLine parsed =
      Parse({"profile", "--dummy", "tiny", "--cpu-threads", "2", "--json", "costs.json"});
  const auto* options = std::get_if<ProfileCommandOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->engine.dummy, "tiny");
  EXPECT_EQ(options->engine.cpu_threads, 2);
  EXPECT_EQ(options->json, "costs.json");
  EXPECT_EQ(ExitCode({"profile"}), 2);
}

}  // namespace
}  // namespace tandem
