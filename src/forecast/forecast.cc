#include "forecast/forecast.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/param_error.h"
#include "bench/arrivals.h"
#include "bench/balanced_throughput.h"
#include "bench/distribution.h"
#include "bench/steady_start.h"
#include "bench/upper_bound.h"
#include "engine/backend.h"
#include "engine/cache_sizing.h"
#include "engine/longest_context.h"
#include "forecast/units.h"
#include "model/shard_slices.h"
#include "perf/profile_file.h"
#include "policy/strategy.h"
#include "simulate/whole_run.h"

namespace tandem {
namespace {

constexpr int64_t kBlockSize = 32;
constexpr double kUsPerMs = 1e3;

// Where the default leaves less than this share of a mean request's room, the most that a card can give.
constexpr double kMostUtilization = 0.97;
constexpr int64_t kFewTokens = 512;

// config: of a shard.
Status CheckShape(const ProfileKey& key, const ModelConfig& config, int64_t num_shards,
                  const std::string& path) {
  if (key.num_shards != num_shards) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, "profile", "{} is of {}, and tensor-parallel-size is {}", path,
        key.num_shards == 1 ? std::string("a whole model") : fmt::format("a shard of {}", key.num_shards),
        num_shards);
  }
  if (key.num_layers == config.num_layers && key.hidden_size == config.hidden_size &&
      key.intermediate_size == config.intermediate_size && key.num_heads == config.num_heads &&
      key.num_kv_heads == config.num_kv_heads && key.head_dim == config.head_dim &&
      key.vocab_size == config.vocab_size)
    return {};
  return MakeParamError(ErrorCode::kInvalidArgument, "profile",
                        "{} is of a model with {} layers of {}, the model has {} of {}", path, key.num_layers,
                        key.hidden_size, config.num_layers, config.hidden_size);
}

int64_t TokensWithin(const ModelConfig& config, int64_t bytes) {
  return bytes <= 0 ? 0 : KvTokensWithin(config, KvFormat::Plain(DType::kBF16), bytes);
}

int64_t TokensOf(const CacheSize& size, const ModelConfig& config) {
  if (size.unit == CacheSize::Unit::kBytes) return TokensWithin(config, size.amount);
  return RoundUp(size.amount, kBlockSize);
}

Status SizeGpuTier(const ForecastOptions& options, const GpuCard& gpu, ForecastMachine* machine) {
  const ModelConfig& config = machine->model.config;
  if (options.gpu_kv_cache) {
    machine->gpu_kv_tokens = TokensOf(*options.gpu_kv_cache, config);
    return {};
  }
  const int64_t memory_bytes = machine->num_shards * gpu.memory_bytes;
  const int64_t taken = machine->model.weight_bytes() + machine->num_shards * CudaDefaults().workspace_bytes;
  const auto tokens_at = [&](double utilization) {
    const auto bytes = static_cast<int64_t>(utilization * static_cast<double>(memory_bytes));
    return TokensWithin(config, bytes - taken);
  };
  machine->gpu_memory_utilization =
      options.gpu_memory_utilization.value_or(EngineOptions().gpu_memory_utilization);
  machine->gpu_kv_tokens = tokens_at(machine->gpu_memory_utilization);
  if (!options.gpu_memory_utilization && machine->gpu_kv_tokens < kFewTokens) {
    machine->gpu_memory_utilization = kMostUtilization;
    machine->gpu_kv_tokens = tokens_at(kMostUtilization);
  }
  if (machine->gpu_kv_tokens > 0) return {};
  return MakeParamError(
      ErrorCode::kResourceExhausted, "model",
      "the weights of {} take {:.1f} GiB ({}), and {} has {:.1f} GiB: try {}:int4 or a larger card",
      machine->model.name, ToGiB(machine->model.weight_bytes()), machine->model.form, machine->gpu,
      ToGiB(memory_bytes), machine->model.name);
}

ScheduleLimits LimitsOf(const ForecastMachine& machine, int64_t async_cohorts) {
  EngineOptions options;
  options.max_num_batched_tokens = machine.max_num_batched_tokens;
  options.max_model_len = machine.model.config.max_position;
  return {.max_num_seqs = machine.max_num_seqs,
          .max_num_batched_tokens = machine.max_num_batched_tokens,
          .reserve_blocks = std::max<int64_t>(1, machine.gpu_kv_tokens / kBlockSize / 100),
          .num_layers = machine.costs.num_layers(),
          .max_transit_tokens = TransitTokens(options, {.block_size = kBlockSize}),
          .max_cohort_rows = machine.max_num_seqs,
          .max_rider_rows = std::min(machine.max_num_seqs, CudaDefaults().max_rider_rows),
          .max_riding_cohorts = async_cohorts};
}

RunSetup SetupOf(const StrategyChoice& choice, const ForecastMachine& machine) {
  return {.strategy = choice.name,
          .limits = LimitsOf(machine, choice.async_cohorts),
          .block_size = kBlockSize,
          .gpu_tokens = machine.gpu_kv_tokens,
          .cpu_tokens = machine.cpu_kv_tokens};
}

// After PlayIntoSteadyState, which puts those that have begun first.
std::vector<RunRequest> RunRequestsOf(const std::vector<WorkloadRequest>& requests, const TierRoom& room) {
  const std::vector<std::optional<Tier>> places = PlacesOf(room, requests);
  std::vector<RunRequest> run;
  for (size_t i = 0; i < requests.size(); ++i) {
    run.push_back({.prompt_tokens = requests[i].prompt_tokens,
                   .output_tokens = requests[i].output_tokens,
                   .tier = places[i],
                   .made_tokens = places[i] ? requests[i].made_tokens : 0});
  }
  return run;
}

TimeParts SharesOf(const TimeParts& parts) {
  const double sum = std::max(parts.SumUs(), 1e-9);
  return {.weights_us = parts.weights_us / sum,
          .products_us = parts.products_us / sum,
          .gpu_attention_us = parts.gpu_attention_us / sum,
          .cpu_wait_us = parts.cpu_wait_us / sum,
          .copies_us = parts.copies_us / sum,
          .outside_us = parts.outside_us / sum};
}

std::string LimitOf(const SaturatedForecast& saturated) {
  const TimeParts& share = saturated.share;
  const double rows = saturated.decodes[0] + saturated.decodes[1];
  const std::array<std::pair<double, std::string>, 6> limits = {{
      {share.weights_us, fmt::format("reading the weights for {:.1f} requests: room for KV", rows)},
      {share.products_us, "the GPU's arithmetic"},
      {share.gpu_attention_us, "attention on the GPU"},
      {share.cpu_wait_us, "the host's memory bandwidth: the GPU waits for CPU attention"},
      {share.copies_us, "the link between GPU and host"},
      {share.outside_us, "logits and sampling"},
  }};
  const auto& largest = *std::ranges::max_element(limits, {}, [](const auto& limit) { return limit.first; });
  constexpr double kBusy = 0.9;
  const std::string also = saturated.cpu_busy > kBusy && share.cpu_wait_us < largest.first
                               ? ", and the host's memory bandwidth: CPU attention never rests"
                               : "";
  return largest.second + also;
}

std::vector<RunRequest> Arriving(std::span<const WorkloadRequest> requests,
                                 const std::vector<double>& times_s) {
  std::vector<RunRequest> run;
  for (size_t i = 0; i < times_s.size(); ++i) {
    run.push_back({.prompt_tokens = requests[i].prompt_tokens,
                   .output_tokens = requests[i].output_tokens,
                   .arrival_us = times_s[i] * kUsPerSecond,
                   .tier = std::nullopt});
  }
  return run;
}

// Of a steady state, what is judged. Requests of real lengths differ so much that a hundred of them, a minute
// and a half of some cards, were off by up to 13 %. Hours of a slow one would take too long to play.
double WindowSeconds(double tokens_per_s, const MeanLengths& lengths) {
  constexpr double kRequests = 500;
  constexpr double kLeastSeconds = 90;
  constexpr double kMostSeconds = 3'600;
  return std::clamp(kRequests * lengths.output / tokens_per_s, kLeastSeconds, kMostSeconds);
}

// Until those who wait have begun, if they do as in the play, less what that may vary by.
double SecondsLeft(double num_left, double num_entered, double played_s) {
  constexpr double kSurely = 0.9;
  return num_entered <= 0 ? std::numeric_limits<double>::infinity()
                          : kSurely * num_left / num_entered * played_s;
}

// Ends before the queue does: tiers that run out are no steady state.
RunWindow SteadyWindow(double seconds, double seconds_left) {
  constexpr double kWarmUpSeconds = 10;
  constexpr double kMostWarmUp = 0.25;
  const double end_s = std::min(kWarmUpSeconds + seconds, seconds_left);
  return {.begin_us = std::min(kWarmUpSeconds, kMostWarmUp * end_s) * kUsPerSecond,
          .end_us = end_s * kUsPerSecond};
}

// Enough for a median; the p99 of so many is a hint.
constexpr size_t kLoadedRequests = 400;

Result<LoadedForecast> PlayLoaded(const StrategyChoice& choice, const ForecastMachine& machine,
                                  std::span<const WorkloadRequest> requests, double rate, uint64_t seed) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(requests.size(), kLoadedRequests));
  const std::vector<WorkloadRequest> first(requests.begin(), requests.begin() + count);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> times_s,
                          ArrivalTimes(first, {.kind = ArrivalKind::kPoisson, .rate = rate}, seed));
  TANDEM_ASSIGN_OR_RETURN(const PlayedRun run,
                          PlayRun(SetupOf(choice, machine), machine.costs, Arriving(first, times_s)));
  LoadedForecast loaded{.rate = rate};
  loaded.output_throughput = static_cast<double>(run.output_tokens) / run.us * kUsPerSecond;
  std::vector<double> ttft_ms;
  std::vector<double> tpot_ms;
  for (size_t i = 0; i < first.size(); ++i) {
    const RunTimes& times = run.times[i];
    ttft_ms.push_back((times.first_token_us - times.arrival_us) / kUsPerMs);
    const auto output_tokens = static_cast<double>(first[i].output_tokens);
    if (output_tokens > 1)
      tpot_ms.push_back((times.end_us - times.first_token_us) / kUsPerMs / (output_tokens - 1));
    loaded.per_token_latency_s += (times.end_us - times.arrival_us) / kUsPerSecond / output_tokens;
  }
  loaded.per_token_latency_s /= static_cast<double>(first.size());
  if (const auto ttft = Summarize(ttft_ms)) {
    loaded.median_ttft_ms = ttft->median;
    loaded.p99_ttft_ms = ttft->p99;
  }
  if (const auto tpot = Summarize(tpot_ms)) loaded.median_tpot_ms = tpot->median;
  return loaded;
}

// Costs with CPU attention that reads at another rate.
CostTable WithCpuRate(const CostTable& costs, double factor) {
  CostMeasurements measured = costs.measurements();
  for (CostLine& line : measured.cpu_attention) {
    for (CostPoint& point : line.points) point.us /= factor;
  }
  auto table = CostTable::Create(std::move(measured));
  TANDEM_CHECK(table.ok(), "{}", table.error().message);
  return std::move(table).value();
}

// What CPU attention reads in long runs, by its costs.
double CpuRateOf(const CostTable& costs, const ModelOutline& model) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kTokens = 131'072;
  if (!costs.measurements().has_cpu_tier()) return 0;
  const double bytes = static_cast<double>(model.kv_token_bytes()) /
                       static_cast<double>(model.config.num_layers) * static_cast<double>(kTokens);
  return bytes / costs.CpuAttentionUs(kRows, kTokens) * kUsPerSecond;
}

ThroughputBound BoundOf(const ForecastMachine& machine, const LayerCosts& costs,
                        std::span<const WorkloadRequest> requests) {
  return BoundThroughput(costs, requests,
                         {.gpu_tier_tokens = machine.gpu_kv_tokens,
                          .cpu_tier_tokens = machine.cpu_kv_tokens,
                          .max_chunk_tokens = machine.max_num_batched_tokens});
}

Status SweepLoad(const ForecastOptions& options, const ForecastMachine& machine,
                 std::span<const WorkloadRequest> requests, Forecast* forecast) {
  for (const StrategyChoice& choice : options.strategies) {
    for (const double share : {0.25, 0.5, 0.75, 0.9, 1.0, 1.15, 1.3, 1.6, 2.0}) {
      TANDEM_ASSIGN_OR_RETURN(
          LoadedForecast loaded,
          PlayLoaded(choice, machine, requests, share * forecast->gpu_only_rate(), options.seed));
      forecast->load_sweep.push_back({choice.text, loaded});
    }
  }
  return {};
}

Status SweepBandwidth(const ForecastOptions& options, const ForecastMachine& machine,
                      std::span<const WorkloadRequest> requests, Forecast* forecast) {
  for (const double factor : {0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0}) {
    const CostTable costs = WithCpuRate(machine.costs, factor);
    BandwidthPoint point{.cpu_attention_bytes_per_s = factor * machine.cpu_attention_bytes_per_s};
    for (const StrategyChoice& choice : options.strategies) {
      TANDEM_ASSIGN_OR_RETURN(const SaturatedForecast saturated,
                              PlaySaturated(choice, machine, costs, requests));
      if (saturated.output_throughput <= point.best) continue;
      point.best = saturated.output_throughput;
      point.best_strategy = choice.text;
    }
    point.upper_bound = BoundOf(machine, costs, requests).upper_bound;
    forecast->bandwidth_sweep.push_back(point);
  }
  return {};
}

double WattsPerCore(const ForecastOptions& options, const HostMachine& host) {
  if (host.num_cores == 0) return 0;
  if (options.watts_per_core > 0) return options.watts_per_core;
  return host.watts / static_cast<double>(host.num_cores);
}

// Busy cores: the engine's thread all the time, those of CPU attention while they attend.
std::optional<double> JoulesPerToken(const ForecastMachine& machine, const SaturatedForecast& saturated) {
  if (machine.gpu_watts <= 0 || machine.watts_per_core <= 0 || saturated.output_throughput <= 0)
    return std::nullopt;
  const double busy_cores = 1 + saturated.cpu_busy * static_cast<double>(machine.cpu_attention_cores);
  return (machine.gpu_watts + machine.watts_per_core * busy_cores) / saturated.output_throughput;
}

}  // namespace

Result<ForecastMachine> DescribeMachine(const ForecastOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(ModelOutline model, OutlineModel(options.model));
  const int64_t num_shards = options.tensor_parallel_size;
  TANDEM_RETURN_IF_ERROR(CheckShards(model.config, num_shards));
  const ModelConfig shard = ConfigOf(model.config, {.rank = 0, .size = static_cast<int>(num_shards)});
  // Those that several shards have are there as often.
  model.config.num_kv_heads = num_shards * shard.num_kv_heads;
  SheetMachine sheet{.gpu_sm_limit = options.gpu_sm_limit, .num_shards = num_shards};
  const bool has_profile = !options.profile.empty();
  if (!has_profile || !options.gpu.empty() || !options.gpu_kv_cache) {
    TANDEM_ASSIGN_OR_RETURN(sheet.gpu, FindGpuCard(options.gpu));
  }
  if (!has_profile || !options.host.empty() || !options.cpu_kv_cache) {
    TANDEM_ASSIGN_OR_RETURN(sheet.host, FindHostMachine(options.host));
  }
  if (options.gpu_bytes_per_s > 0) sheet.gpu.bytes_per_s = options.gpu_bytes_per_s;
  if (options.gpu_flops > 0) sheet.gpu.flops_16bit = sheet.gpu.flops_fp8 = options.gpu_flops;
  std::optional<CostTable> costs;
  if (has_profile) {
    TANDEM_ASSIGN_OR_RETURN(StoredProfile profile, ReadStoredProfile(options.profile));
    TANDEM_RETURN_IF_ERROR(CheckShape(profile.key, shard, num_shards, options.profile));
    costs = std::move(profile.costs);
  } else {
    costs = SheetCosts(sheet, model);
  }
  if (options.host_bytes_per_s > 0) {
    const double rate = CpuRateOf(*costs, model);
    if (rate > 0) costs = WithCpuRate(*costs, options.host_bytes_per_s / rate);
  }
  ForecastMachine machine{
      .gpu = num_shards == 1 || sheet.gpu.title.empty() ? std::string(sheet.gpu.title)
                                                        : fmt::format("{} x {}", num_shards, sheet.gpu.title),
      .host = std::string(sheet.host.title),
      .costs_from = has_profile ? options.profile : "published figures",
      .num_shards = num_shards,
      .model = std::move(model),
      .gpu_watts = static_cast<double>(num_shards) * sheet.gpu.watts,
      .watts_per_core = WattsPerCore(options, sheet.host),
      .cpu_attention_cores = CpuAttentionCores(sheet.host),
      .max_num_batched_tokens = options.max_num_batched_tokens > 0 ? options.max_num_batched_tokens
                                                                   : CudaDefaults().max_num_batched_tokens,
      .costs = std::move(*costs)};
  machine.max_num_seqs = std::min(options.max_num_seqs, machine.max_num_batched_tokens);
  machine.cpu_attention_bytes_per_s = CpuRateOf(machine.costs, machine.model);
  TANDEM_RETURN_IF_ERROR(SizeGpuTier(options, sheet.gpu, &machine));
  const int64_t host_bytes =
      options.host_memory_bytes > 0 ? options.host_memory_bytes : sheet.host.memory_bytes;
  machine.cpu_kv_tokens = options.cpu_kv_cache
                              ? TokensOf(*options.cpu_kv_cache, machine.model.config)
                              : TokensWithin(machine.model.config, DefaultBytesInHostMemory(host_bytes));
  return machine;
}

Result<SaturatedForecast> PlaySaturated(const StrategyChoice& choice, const ForecastMachine& machine,
                                        const LayerCosts& costs, std::span<const WorkloadRequest> requests) {
  const RunSetup setup = SetupOf(choice, machine);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Strategy> created, CreateStrategy(choice.name, &costs));
  const MeanLengths lengths = MeanLengthsOf(requests);
  TierRoom room = {.block_size = kBlockSize,
                   .gpu_blocks = machine.gpu_kv_tokens / kBlockSize,
                   .cpu_blocks = machine.cpu_kv_tokens / kBlockSize,
                   .max_num_seqs = machine.max_num_seqs};
  room.max_cpu_requests = created->SteadyCpuRows(
      {{.prompt_tokens_per_output = lengths.computed_per_output,
        .mean_context = lengths.context,
        .mean_prompt = lengths.prompt,
        .gpu_rows = static_cast<double>(machine.gpu_kv_tokens) / lengths.own_context}});
  std::vector<WorkloadRequest> begun(requests.begin(), requests.end());
  const int64_t num_begun = BeginAmidWork(room, &begun);
  const SteadyPlay play{.strategy = choice.name, .limits = setup.limits, .costs = &costs};
  TANDEM_ASSIGN_OR_RETURN(const SteadyRequests steady, PlayIntoSteadyState(room, play, &begun));
  room.max_cpu_requests = created->uses_cpu_tier() ? room.max_num_seqs : 0;
  // Long enough that tiers fill and empty several times.
  const double window_s =
      std::max(steady.played_s, WindowSeconds(BoundOf(machine, costs, requests).upper_bound, lengths));
  const auto num_left = static_cast<double>(begun.size()) - static_cast<double>(steady.num_begun);
  const double num_entered = static_cast<double>(requests.size()) - static_cast<double>(num_begun) - num_left;
  const RunWindow window = SteadyWindow(window_s, SecondsLeft(num_left, num_entered, steady.played_s));
  TANDEM_ASSIGN_OR_RETURN(const PlayedRun run, PlayRun(setup, costs, RunRequestsOf(begun, room), window));
  const auto iterations = static_cast<double>(run.iterations);
  const double rows = static_cast<double>(run.output_tokens) / iterations;
  const double gpu_share = run.decodes[0] / std::max(1e-9, run.decodes[0] + run.decodes[1]);
  SaturatedForecast saturated;
  const double measured = static_cast<double>(run.output_tokens) / run.us * kUsPerSecond;
  saturated.output_throughput =
      BalancedThroughput(costs, lengths,
                         {.seconds = run.us / kUsPerSecond,
                          .iterations = iterations,
                          .prefill_tokens = static_cast<double>(run.prefill_tokens) / iterations,
                          .gpu_tier_tokens = gpu_share * rows,
                          .cpu_tier_tokens = (1 - gpu_share) * rows})
          .value_or(measured);
  saturated.tpot_ms = (run.decodes[0] + run.decodes[1]) / measured * kUsPerSecond / kUsPerMs;
  saturated.kv_tokens = run.kv_tokens;
  saturated.decodes = run.decodes;
  saturated.cpu_busy = std::min(1.0, run.cpu_us / run.us);
  saturated.share = SharesOf(run.parts);
  saturated.limit = LimitOf(saturated);
  saturated.joules_per_token = JoulesPerToken(machine, saturated);
  return saturated;
}

Result<Forecast> PlayForecast(const ForecastOptions& options, const ForecastMachine& machine) {
  TANDEM_ASSIGN_OR_RETURN(Workload workload,
                          LoadWorkload(options.workload, options.num_requests, options.seed));
  // gpu-only serves them too.
  TANDEM_RETURN_IF_ERROR(
      KeepFitting(std::min(machine.model.config.max_position, machine.gpu_kv_tokens), &workload));
  const std::vector<WorkloadRequest>& requests = workload.requests;
  Forecast forecast{.num_requests = static_cast<int64_t>(requests.size()),
                    .num_dropped = workload.num_dropped};
  forecast.lengths = MeanLengthsOf(requests);
  const ThroughputBound bound = BoundOf(machine, machine.costs, requests);
  forecast.ideal_gpu_only = bound.ideal_gpu_only;
  forecast.upper_bound = bound.upper_bound;
  const StrategyChoice gpu_only_choice{.text = "gpu-only", .name = "gpu-only"};
  TANDEM_ASSIGN_OR_RETURN(const SaturatedForecast gpu_only,
                          PlaySaturated(gpu_only_choice, machine, machine.costs, requests));
  forecast.gpu_only = gpu_only.output_throughput;
  // A load that gpu-only bears.
  constexpr double kLoad = 0.7;
  const double rate = options.rate.value_or(kLoad * forecast.gpu_only_rate());
  for (const StrategyChoice& choice : options.strategies) {
    StrategyForecast of{.strategy = choice.text, .saturated = gpu_only, .loaded = {}};
    if (choice.name != "gpu-only") {
      TANDEM_ASSIGN_OR_RETURN(of.saturated, PlaySaturated(choice, machine, machine.costs, requests));
    }
    TANDEM_ASSIGN_OR_RETURN(of.loaded, PlayLoaded(choice, machine, requests, rate, options.seed));
    forecast.strategies.push_back(std::move(of));
  }
  if (options.sweep) {
    TANDEM_RETURN_IF_ERROR(SweepLoad(options, machine, requests, &forecast));
    TANDEM_RETURN_IF_ERROR(SweepBandwidth(options, machine, requests, &forecast));
  }
  return forecast;
}

}  // namespace tandem
