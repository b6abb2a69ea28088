#include "cli/engine_flags.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/env_flag.h"
#include "cli/limit_flags.h"
#include "cli/size_flag.h"
#include "kv_events/kv_events_config.h"
#include "load/rope_scaling.h"
#include "policy/strategy.h"

namespace tandem {
namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

Error FlagError(ErrorCode code, const char* flag, std::string message) {
  return Error{.code = code, .message = std::move(message), .param = flag};
}

// "--served-model-name A B MODEL": the flag takes all three words.
Status TakeModelFromNames(EngineFlags* flags) {
  std::vector<std::string>& names = flags->served_model_names;
  if (!flags->options.model.empty() || !flags->options.dummy.empty() || names.size() < 2) return {};
  std::error_code ignored;
  if (!std::filesystem::exists(names.back(), ignored)) {
    return FlagError(ErrorCode::kInvalidArgument, "model",
                     fmt::format("name a model before --served-model-name or after its names, of which the "
                                 "last, '{}', is no file or folder",
                                 names.back()));
  }
  flags->options.model = std::move(names.back());
  names.pop_back();
  return {};
}

Status CheckAvailable(const EngineFlags& flags) {
  const std::string& strategy = flags.options.strategy;
  if (flags.options.device != "host" && flags.options.device != "cuda") {
    return FlagError(ErrorCode::kInvalidArgument, "device",
                     "'" + flags.options.device + "' is neither host nor cuda");
  }
  TANDEM_RETURN_IF_ERROR(CheckStrategyName(strategy));
  const auto needs_cuda = [](const char* flag) {
    return FlagError(ErrorCode::kUnsupported, flag, "needs --device cuda");
  };
  const bool cuda = flags.options.device == "cuda";
  if (!cuda && !flags.gpu_memory_limit.empty()) return needs_cuda("gpu-memory-limit");
  if (!cuda && flags.gpu_memory_utilization) return needs_cuda("gpu-memory-utilization");
  if (!cuda && flags.gpu_sm_limit) return needs_cuda("gpu-sm-limit");
  if (!cuda && flags.options.gpu_sm_slices > 0) return needs_cuda("gpu-sm-slices");
  if (flags.options.model.empty() == flags.options.dummy.empty()) {
    return FlagError(ErrorCode::kInvalidArgument, "model",
                     flags.options.model.empty()
                         ? "name a model (a folder or a .gguf file) or use --dummy NAME"
                         : "a model and --dummy were both given");
  }
  return {};
}

}  // namespace

void AddEngineFlags(CLI::App* app, EngineFlags* flags) {
  EngineOptions* options = &flags->options;
  app->add_option("model", options->model, "Model: a Hugging Face folder or a .gguf file")
      ->envname("TANDEM_MODEL");
  AddFlag(app, "dummy", &options->dummy, "Instead of a model: seeded random weights of the shape of NAME");
  AddFlag(app, "tokenizer", &options->tokenizer,
          "Folder or .gguf file whose tokenizer and chat template are used (default: the model's; of "
          "--dummy, bytes)");
  AddFlag(app, "served-model-name", &flags->served_model_names,
          "Names in the API, the first of them in answers (default: from the model's path); after them comes "
          "another flag or MODEL")
      ->delimiter(',');
  AddFlag(app, "device", &options->device, "Backend: host or cuda")->capture_default_str();
  AddFlag(app, "strategy", &options->strategy,
          fmt::format("Scheduling strategy: {}", fmt::join(StrategyNames(), ", ")))
      ->capture_default_str();
  AddFlag(app, "dtype", &flags->dtype, "Type of weights and KV cache: auto, bf16, fp16, fp32")
      ->capture_default_str();
  AddFlag(app, "quantization", &flags->quantization,
          "Weights in memory: auto (as the file has them where the backend by default multiplies that), keep "
          "(where it can), none (all in --dtype), int4, int8, fp8 (floats are quantized while loading)")
      ->capture_default_str();
  AddFlag(app, "gpu-kv-cache", &flags->gpu_kv_cache,
          "SIZE of the gpu tier (4GiB, 26400tok; default: from memory)");
  AddFlag(app, "cpu-kv-cache", &flags->cpu_kv_cache,
          "SIZE of the cpu tier (default: from memory, if the strategy uses it)");
  AddFlag(app, "kv-transit", &flags->kv_transit,
          "SIZE of contexts in the cpu tier that pass through the device at once as they are prefilled: the "
          "longest context there (131072tok; default: 16384tok, or two iterations)");
  AddFlag(app, "kv-cache-dtype", &options->kv_cache_dtype,
          "Type of K and V in the gpu tier: auto (as --dtype), fp8 or int8")
      ->capture_default_str();
  AddFlag(app, "cpu-kv-cache-dtype", &options->cpu_kv_cache_dtype,
          "Type of K and V in the cpu tier: auto (as --dtype, beside fp8 of its numbers) or int8")
      ->capture_default_str();
  AddFlag(app, "gpu-memory-limit", &flags->gpu_memory_limit, "SIZE of GPU memory used at most (cuda)");
  AddFlag(app, "gpu-memory-utilization", &flags->gpu_memory_utilization,
          "Share of the GPU's memory used at most (cuda; default: 0.9)");
  AddFlag(app, "gpu-sm-limit", &flags->gpu_sm_limit,
          "SMs of the GPU to use: a slice in place of a smaller card (cuda; default: all)")
      ->check(CLI::Range(1, 4096));
  AddFlag(app, "gpu-sm-slices", &options->gpu_sm_slices,
          "Shards on so many slices of one GPU, for tests (cuda; default: a GPU each)")
      ->check(CLI::Range(2, 64));
  AddFlag(
      app, "tensor-parallel-size", &options->tensor_parallel_size,
      "Shards that compute the model together, each with its part of the threads and of both tiers (cuda: a "
      "GPU each; doctor MODEL says how many there can be)")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  AddFlag(
      app, "lone-shard", &options->lone_shard,
      "FILE of bench_collectives: only the first shard runs, exchange takes what FILE says, the others are "
      "taken to be equal; for figures, with --dummy");
  AddFlag(
      app, "cpu-threads", &options->cpu_threads,
      "Threads of CPU attention, and on the host backend of all computation; 0: one for each physical core "
      "(cuda: all but one in eight)")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  AddFlag(app, "max-model-len", &options->max_model_len, "Context length in tokens; 0: the model's")
      ->check(CLI::Range(int64_t{0}, kMaxInt64))
      ->capture_default_str();
  AddFlag(app, "rope-scaling", &flags->rope_scaling,
          "Stretches the model's context: yarn:FACTOR, linear:FACTOR, llama3:FACTOR, or the JSON object that "
          "config.json would have");
  AddFlag(app, "max-num-seqs", &options->max_num_seqs, "Sequences in an iteration at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  AddMaxNumBatchedTokensFlag(app, &options->max_num_batched_tokens);
  AddFlag(app, "max-num-queued-reqs", &options->max_num_queued_reqs,
          "Waiting requests beyond which new ones get 503")
      ->check(CLI::Range(int64_t{0}, kMaxInt64))
      ->capture_default_str();
  app->add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options->prefix_caching,
                "Requests that begin alike compute their beginning once")
      ->envname("TANDEM_ENABLE_PREFIX_CACHING");
  AddFlag(
      app, "prefix-cache-key", &options->prefix_cache_key,
      "Secret of the hashes by which cached blocks are found, 32 hexadecimal digits, the same for replicas "
      "whose blocks are to be told apart alike; drawn at the start if there is none");
  AddFlag(
      app, "kv-events-config", &flags->kv_events_config,
      "JSON object: whether and where it is published over ZeroMQ which blocks are cached, for routers of "
      "replicas; keys as in vLLM");
  app->add_flag("--async-scheduling,!--no-async-scheduling", options->async_scheduling,
                "An iteration may be enqueued while the one before runs")
      ->envname("TANDEM_ASYNC_SCHEDULING");
  AddFlag(app, "max-itl-ms", &options->max_itl_ms,
          "Inter-token latency: an iteration is kept shorter where possible; 0: no limit")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  AddFlag(app, "max-tpot-ms", &options->max_tpot_ms,
          "Time per output token that strategy auto keeps to, if it can; requests of service tier flex are "
          "exempt; 0: no limit")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  AddAsyncCohortsFlag(app, &options->async_cohorts);
  AddFlag(app, "cpu-attention-order", &options->cpu_attention_order,
          "Order of CPU attention's tasks: wanted (by when the GPU wants them) or arming (first come)")
      ->check(CLI::IsMember({"wanted", "arming"}))
      ->capture_default_str();
  AddFlag(app, "cpu-attention-isa", &options->cpu_attention_isa,
          "Instruction set of CPU attention's kernels, to see what it is worth: portable, avx2, avx512, "
          "avx512_bf16, "
          "avx512_ymm, amx, neon, neon_dot, neon_bf16 (default: the fastest in a trial)");
  AddFlag(app, "profile-seconds", &options->profile_seconds,
          "Where there is no profile of this machine: for measuring costs, at most about so many seconds")
      ->check(CLI::Range(1.0, 1e4))
      ->capture_default_str();
  app->add_flag("--cpu-trial,!--no-cpu-trial", options->cpu_trial,
                "Tries at the first start on a machine how CPU kernels fetch memory best (some 50 ms)")
      ->envname("TANDEM_CPU_TRIAL");
  AddFlag(app, "without", &options->without,
          "To see what it is worth, leaves out (cuda): fa3, fused-gate-up, streamed-products, fp8-products, "
          "hot-products, rider-graphs, graphs; of shards nccl or one-shot, for the other to do all sums")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddFlag(app, "seed", &options->seed, "Seed of requests that bring none")->capture_default_str();
  AddFlag(app, "timeline", &options->timeline,
          "File for a timeline of the first iterations (Trace Event Format, for Perfetto)");
  AddFlag(app, "log-level", &flags->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
}

Result<std::optional<DType>> ParseDTypeFlag(std::string_view name) {
  if (name == "auto") return std::optional<DType>();
  if (name == "bf16" || name == "bfloat16") return std::optional<DType>(DType::kBF16);
  if (name == "fp32" || name == "float32") return std::optional<DType>(DType::kF32);
  if (name == "fp16" || name == "float16") return std::optional<DType>(DType::kF16);
  return FlagError(ErrorCode::kInvalidArgument, "dtype",
                   "'" + std::string(name) + "' is none of auto, bf16, fp16, fp32");
}

Status ResolveNames(EngineFlags* flags) {
  TANDEM_RETURN_IF_ERROR(TakeModelFromNames(flags));
  EngineOptions* options = &flags->options;
  for (const std::string& name : flags->served_model_names) {
    if (name.empty() || name == options->served_model_name) continue;
    if (options->served_model_name.empty()) {
      options->served_model_name = name;
    } else if (std::ranges::find(options->model_aliases, name) == options->model_aliases.end()) {
      options->model_aliases.push_back(name);
    }
  }
  return {};
}

Result<EngineOptions> ToEngineOptions(const EngineFlags& typed) {
  EngineFlags flags = typed;
  TANDEM_RETURN_IF_ERROR(ResolveNames(&flags));
  TANDEM_RETURN_IF_ERROR(CheckAvailable(flags));
  EngineOptions options = flags.options;
  if (options.served_model_name.empty())
    options.served_model_name = options.dummy.empty() ? DefaultModelName(options.model) : options.dummy;
  TANDEM_ASSIGN_OR_RETURN(options.dtype, ParseDTypeFlag(flags.dtype));
  TANDEM_ASSIGN_OR_RETURN(options.quantization, ParseQuantization(flags.quantization));
  if (!flags.rope_scaling.empty()) {
    TANDEM_ASSIGN_OR_RETURN(options.rope_scaling, ParseRopeScaling(flags.rope_scaling));
  }
  TANDEM_ASSIGN_OR_RETURN(options.kv_events, ParseKvEventsConfig(flags.kv_events_config));
  TANDEM_ASSIGN_OR_RETURN(options.gpu_kv_cache, ParseTierSize("gpu-kv-cache", flags.gpu_kv_cache));
  TANDEM_ASSIGN_OR_RETURN(options.cpu_kv_cache, ParseTierSize("cpu-kv-cache", flags.cpu_kv_cache));
  TANDEM_ASSIGN_OR_RETURN(options.kv_transit, ParseTierSize("kv-transit", flags.kv_transit));
  TANDEM_ASSIGN_OR_RETURN(const std::optional<CacheSize> memory_limit,
                          ParseTierSize("gpu-memory-limit", flags.gpu_memory_limit));
  if (memory_limit) {
    if (memory_limit->unit != CacheSize::Unit::kBytes) {
      return FlagError(ErrorCode::kInvalidArgument, "gpu-memory-limit", "the limit is a number of bytes");
    }
    options.gpu_memory_limit_bytes = memory_limit->amount;
  }
  options.gpu_memory_utilization = flags.gpu_memory_utilization.value_or(options.gpu_memory_utilization);
  options.gpu_sm_limit = static_cast<int>(flags.gpu_sm_limit.value_or(0));
  return options;
}

}  // namespace tandem
