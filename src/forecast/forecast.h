// What a machine would make of a workload: the strategies played by predicted times, without the machine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/strategy_choice.h"
#include "bench/workload.h"
#include "engine/engine_options.h"
#include "forecast/model_outline.h"
#include "forecast/sheet_costs.h"
#include "perf/cost_table.h"
#include "perf/iteration_load.h"

namespace tandem {

struct ForecastOptions {
  std::string gpu;   // GpuCard::name; may be empty with a profile and both tiers
  std::string host;  // HostMachine::name; likewise
  std::string model;
  std::string profile;  // file whose costs replace those of the table; empty: none
  std::string workload;
  std::vector<StrategyChoice> strategies;        // at least one
  int64_t tensor_parallel_size = 1;              // cards, each with a shard; the host is that of all
  int64_t gpu_sm_limit = 0;                      // 0: all
  std::optional<double> gpu_memory_utilization;  // absent: the engine's, more where that leaves no room
  std::optional<CacheSize> gpu_kv_cache;         // absent: what the card has left
  std::optional<CacheSize> cpu_kv_cache;         // absent: half of the host's memory
  int64_t host_memory_bytes = 0;                 // 0: the host's
  double host_bytes_per_s = 0;  // that CPU attention reads; 0: by the host's figures, or the profile's
  double gpu_bytes_per_s = 0;   // of the sheet, these two; 0: the card's
  double gpu_flops = 0;
  double watts_per_core = 0;  // of a busy core of the host; 0: by the host's figures
  int64_t max_num_seqs = EngineOptions().max_num_seqs;
  int64_t max_num_batched_tokens = 0;  // 0: the engine's on a GPU
  int64_t num_requests = 8000;
  uint64_t seed = 0;
  std::optional<double> rate;  // requests a second of the loaded run; absent: a share of what gpu-only can do
  bool sweep = false;
};

// A machine, a model and room for KV, as played.
struct ForecastMachine {
  std::string gpu;  // titles; empty: not said
  std::string host;
  std::string costs_from;             // "published figures" or the profile's file
  int64_t num_shards = 1;             // costs are of one; tokens, rates, watts and the model of all
  ModelOutline model;                 // with the KV heads of all shards
  double gpu_memory_utilization = 0;  // 0: the gpu tier was given
  int64_t gpu_kv_tokens = 0;
  int64_t cpu_kv_tokens = 0;
  double cpu_attention_bytes_per_s = 0;
  double gpu_watts = 0;       // at most; 0: not known, these three
  double watts_per_core = 0;  // of a busy core of the host
  int64_t cpu_attention_cores = 0;
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  CostTable costs;
};

// Errors: those of the tables, of the model and of the profile; kInvalidArgument where a profile is of
// another model; kResourceExhausted (param "model") where the weights leave no room. Params are flags.
Result<ForecastMachine> DescribeMachine(const ForecastOptions& options);

// Where all requests wait from the start, amid the work.
struct SaturatedForecast {
  double output_throughput = 0;  // tokens a second, in balance (bench/balanced_throughput.h)
  // Of a request that decodes, mean, by tier (by Little's law: requests over tokens a second of all).
  double tpot_ms = 0;
  std::array<double, kNumTiers> kv_tokens = {};  // means
  std::array<double, kNumTiers> decodes = {};    // requests
  double cpu_busy = 0;                           // share of the time in which CPU attention works
  TimeParts share;                               // of the time: sums to 1
  std::string limit;                             // the largest of them, in words
  // At most: a GPU that draws all it may, all the time, and the cores of the host that are busy. Absent where
  // either is not known.
  std::optional<double> joules_per_token;
};

// Where requests arrive at random (Poisson).
struct LoadedForecast {
  double rate = 0;               // requests a second
  double output_throughput = 0;  // from the first arrival to the last end
  double median_ttft_ms = 0;
  double p99_ttft_ms = 0;
  double median_tpot_ms = 0;
  double per_token_latency_s = 0;  // NEO's: from arrival to end over output tokens, mean
};

struct StrategyForecast {
  std::string strategy;  // StrategyChoice::text, as in LoadPoint and BandwidthPoint
  SaturatedForecast saturated;
  LoadedForecast loaded;
};

// Of --sweep.
struct LoadPoint {
  std::string strategy;
  LoadedForecast loaded;
};
struct BandwidthPoint {
  double cpu_attention_bytes_per_s = 0;
  double best = 0;  // output tokens a second, these two
  double upper_bound = 0;
  std::string best_strategy;
};

struct Forecast {
  int64_t num_requests = 0;
  int64_t num_dropped = 0;  // requests longer than the gpu tier or the model's context
  MeanLengths lengths;
  double gpu_only = 0;        // output tokens a second where all wait, asked for or not
  double ideal_gpu_only = 0;  // output tokens a second, bench/upper_bound.h
  double upper_bound = 0;
  std::vector<StrategyForecast> strategies;
  std::vector<LoadPoint> load_sweep;
  std::vector<BandwidthPoint> bandwidth_sweep;

  // Requests a second that gpu-only serves where all wait.
  double gpu_only_rate() const { return gpu_only / lengths.output; }
};

// Errors: those of the workload; kInvalidArgument (param "workload"): no request fits; kUnsupported: a
// strategy that there is not.
Result<Forecast> PlayForecast(const ForecastOptions& options, const ForecastMachine& machine);

// One strategy, saturated; requests: all fit. With costs that are not the machine's.
Result<SaturatedForecast> PlaySaturated(const StrategyChoice& choice, const ForecastMachine& machine,
                                        const LayerCosts& costs, std::span<const WorkloadRequest> requests);

}  // namespace tandem
