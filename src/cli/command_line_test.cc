#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace tandem {
namespace {

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
                                    "--served-model-name",
                                    "name",
                                    "--strategy",
                                    "gpu-only",
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
  EXPECT_EQ(options->server.api_key, "k");
  EXPECT_EQ(options->server.served_model_name, "name");
}

TEST(CommandLine, FlagsWinOverTheEnvironment) {
  setenv("TANDEM_MAX_NUM_SEQS", "9", 1);
  const CommandLine from_environment = Parse({"serve", "m"});
  const CommandLine from_flag = Parse({"serve", "m", "--max-num-seqs", "4"});
  unsetenv("TANDEM_MAX_NUM_SEQS");
  EXPECT_EQ(std::get<ServeOptions>(from_environment).engine.max_num_seqs, 9);
  EXPECT_EQ(std::get<ServeOptions>(from_flag).engine.max_num_seqs, 4);
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
  EXPECT_EQ(ExitCode({"serve", "m", "--strategy", "async"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--gpu-sm-limit", "8"}), 2);
  EXPECT_EQ(ExitCode({"serve", "m", "--max-num-seqs", "0"}), 2);
  EXPECT_EQ(ExitCode({"generate", "m"}), 2);
}

TEST(CommandLine, HelpAndVersionAreExitCodeZero) {
  EXPECT_EQ(ExitCode({"--version"}), 0);
  EXPECT_EQ(ExitCode({"--help"}), 0);
  EXPECT_EQ(ExitCode({"serve", "--help"}), 0);
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
  const CommandLine dummy = Parse({"bench", "offline", "--dummy", "tiny", "--workload", "osc"});
  ASSERT_TRUE(std::holds_alternative<BenchOptions>(dummy));
  EXPECT_EQ(std::get<BenchOptions>(dummy).engine.dummy, "tiny");
}

TEST(CommandLine, WrongUsageOfBenchIsExitCodeTwo) {
  EXPECT_EQ(ExitCode({"bench"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "m"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "m", "--workload", "osc", "--num-requests", "0"}), 2);
  EXPECT_EQ(ExitCode({"bench", "offline", "--workload", "osc"}), 2);
}

TEST(DefaultModelName, IsTheLastPartOfThePath) {
  EXPECT_EQ(DefaultModelName("/a/b/Model.Q4_1.gguf"), "Model.Q4_1");
  EXPECT_EQ(DefaultModelName("/a/Qwen2.5-0.5B/"), "Qwen2.5-0.5B");
  EXPECT_EQ(DefaultModelName("name"), "name");
}

}  // namespace
}  // namespace tandem
