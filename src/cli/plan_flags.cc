#include "cli/plan_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "base/param_error.h"
#include "cli/env_flag.h"
#include "cli/limit_flags.h"
#include "cli/size_flag.h"
#include "forecast/units.h"

namespace tandem {

// What other commands call by the same name and mean otherwise has no variable: TANDEM_HOST is an address.
void AddPlanFlags(CLI::App* app, PlanFlags* flags) {
  ForecastOptions* forecast = &flags->options.forecast;
  app->add_option("--gpu", forecast->gpu,
                  "The card, as t4 or rtx-4090; an unknown name lists those there are");
  app->add_option("--host", forecast->host,
                  "The host, as g4dn.4xlarge or ddr5-desktop; an unknown name lists those there are");
  app->add_option(
         "--model", forecast->model,
         "A shape as --dummy takes it (llama-3.1-8b, llama-2-7b:int4), a model folder or a .gguf file")
      ->required();
  app->add_option("--workload", forecast->workload, "As for bench offline")->required();
  app->add_option(
      "--profile", forecast->profile,
      "Profile of the machine (tandem profile keeps it in the cache folder), in place of published figures");
  app->add_option("--strategies", flags->strategies,
                  "Separated by commas; async:async-cohorts=1 is async with --async-cohorts 1")
      ->capture_default_str();
  AddFlag(app, "gpu-kv-cache", &flags->gpu_kv_cache,
          "Size of the gpu tier, as SIZE (default: what the weights leave of the card)");
  AddFlag(app, "cpu-kv-cache", &flags->cpu_kv_cache,
          "Size of the cpu tier, as SIZE (default: half of the host's memory)");
  AddFlag(app, "gpu-memory-utilization", &flags->gpu_memory_utilization,
          "Share of the GPU's memory at most (default: 0.9, and 0.97 where that leaves no room)");
  AddFlag(app, "tensor-parallel-size", &forecast->tensor_parallel_size,
          "Cards, each with a shard of the model; the host is that of all of them")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  AddFlag(app, "gpu-sm-limit", &forecast->gpu_sm_limit, "A slice of the GPU with so many SMs; 0: all")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--host-memory", flags->host_memory,
                  "The host's memory, as SIZE in bytes (default: the table's)");
  app->add_option("--host-gb-per-s", flags->host_gb_per_s,
                  "GB/s that CPU attention reads, where it is known (default: by the table or the profile)")
      ->check(CLI::PositiveNumber);
  app->add_option("--gpu-gb-per-s", flags->gpu_gb_per_s,
                  "GB/s of the card's data sheet (default: the table's)")
      ->check(CLI::PositiveNumber);
  app->add_option("--gpu-tflops", flags->gpu_tflops,
                  "TFLOP/s of the card's data sheet (default: the table's)")
      ->check(CLI::PositiveNumber);
  app->add_option("--watts-per-core", forecast->watts_per_core,
                  "Watts of a busy core of the host, for joules a token (default: by the table, where it has "
                  "the processor's watts)")
      ->check(CLI::PositiveNumber);
  AddFlag(app, "max-num-seqs", &forecast->max_num_seqs, "Sequences that run at once, at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  AddMaxNumBatchedTokensFlag(app, &forecast->max_num_batched_tokens);
  AddAsyncCohortsFlag(app, &flags->async_cohorts);
  app->add_option("--num-requests", forecast->num_requests, "Requests of the workload that are played")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str();
  AddFlag(app, "seed", &forecast->seed, "Of lengths and arrivals")->capture_default_str();
  app->add_option("--rate", flags->rate,
                  "Requests a second for times to first token (default: 0.7 of what gpu-only can do)")
      ->check(CLI::PositiveNumber);
  app->add_flag("--sweep", forecast->sweep,
                "Also latency against load and throughput against host bandwidth");
  app->add_option("--price", flags->options.price, "Dollars an hour of the machine, for tokens a dollar")
      ->check(CLI::PositiveNumber);
  app->add_option("--json", flags->options.json, "File for the result as one JSON object");
}

Result<PlanOptions> MakePlanOptions(const PlanFlags& flags) {
  PlanOptions options = flags.options;
  ForecastOptions& forecast = options.forecast;
  TANDEM_ASSIGN_OR_RETURN(forecast.gpu_kv_cache, ParseTierSize("gpu-kv-cache", flags.gpu_kv_cache));
  TANDEM_ASSIGN_OR_RETURN(forecast.cpu_kv_cache, ParseTierSize("cpu-kv-cache", flags.cpu_kv_cache));
  if (!flags.host_memory.empty()) {
    const auto bytes = ParseByteSize(flags.host_memory);
    if (!bytes.ok()) return MakeParamError(bytes.error().code, "host-memory", "{}", bytes.error().message);
    forecast.host_memory_bytes = *bytes;
  }
  TANDEM_ASSIGN_OR_RETURN(forecast.strategies, ParseStrategyChoices(flags.strategies, flags.async_cohorts));
  if (flags.gpu_memory_utilization &&
      (*flags.gpu_memory_utilization <= 0 || *flags.gpu_memory_utilization > 1)) {
    return MakeParamError(ErrorCode::kInvalidArgument, "gpu-memory-utilization", "{} is not in (0, 1]",
                          *flags.gpu_memory_utilization);
  }
  forecast.gpu_memory_utilization = flags.gpu_memory_utilization;
  forecast.rate = flags.rate;
  forecast.host_bytes_per_s = kGB * flags.host_gb_per_s;
  forecast.gpu_bytes_per_s = kGB * flags.gpu_gb_per_s;
  forecast.gpu_flops = kTera * flags.gpu_tflops;
  return options;
}

}  // namespace tandem
