#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/latency_window.h"

namespace tandem {
namespace {

constexpr double kUsPerSecond = 1e6;

using Buckets = prometheus::Histogram::BucketBoundaries;
using LabelMap = std::map<std::string, std::string>;

const Buckets kTimeToFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                          0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                          20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const Buckets kTokenLatencyBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                      0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const Buckets kRequestLatencyBuckets = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                        5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                        60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Buckets kParamNBuckets = {1, 2, 5, 10, 20};

// 1, 2, 5, 10, 20, 50, ... up to max.
Buckets OneTwoFiveBuckets(int64_t max) {
  Buckets buckets;
  for (int64_t power = 1; power <= max; power *= 10) {
    for (const int64_t mantissa : {1, 2, 5}) {
      if (mantissa * power <= max) buckets.push_back(static_cast<double>(mantissa * power));
    }
  }
  return buckets;
}

// Turns the engine's snapshot into families at scrape time: nothing is counted twice.
class EngineFamilies {
 public:
  EngineFamilies(const EngineStats& stats, const LabelMap& labels) : labels_(labels) {
    const auto usage = [](int64_t free, int64_t total) {
      return total > 0 ? 1.0 - static_cast<double>(free) / static_cast<double>(total) : 0.0;
    };
    const double gpu_usage = usage(stats.gpu_blocks_free, stats.gpu_blocks_total);
    const double all_usage =
        usage(stats.gpu_blocks_free + stats.cpu_blocks_free, stats.gpu_blocks_total + stats.cpu_blocks_total);
    Gauge("vllm:num_requests_running", "Requests in the current iterations.",
          static_cast<double>(stats.num_running));
    Gauge("vllm:num_requests_waiting", "Requests waiting to be scheduled.",
          static_cast<double>(stats.num_waiting));
    Gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks of both tiers in use; 1 means all.", all_usage);
    Gauge("vllm:gpu_cache_usage_perc", "Share of the gpu tier's KV blocks in use; 1 means all.", gpu_usage);
    Counter("vllm:num_preemptions_total", "Preemptions.", static_cast<double>(stats.preemptions));
    AddPreemptions(stats);
    AddPrefixCache(stats);
    AddIterationTokens(stats.iteration_tokens);
    Counter("tandem:drawn_tokens_total",
            "Tokens drawn, those past a stop string and those of a prompt that was only scored included.",
            static_cast<double>(stats.generation_tokens));
    PerTier("tandem:kv_blocks", "KV blocks of a tier.", stats.gpu_blocks_total, stats.cpu_blocks_total);
    PerTier("tandem:kv_blocks_free", "Free KV blocks of a tier.", stats.gpu_blocks_free,
            stats.cpu_blocks_free);
    Gauge("tandem:kv_block_size_tokens", "Tokens in a KV block.", static_cast<double>(stats.block_size));
    Counter("tandem:iterations_total", "Iterations of the engine.", static_cast<double>(stats.iterations));
    Counter("tandem:iterations_ahead_total", "Of those, enqueued while the one before ran.",
            static_cast<double>(stats.iterations_ahead));
    Counter("tandem:rejected_requests_total", "Requests refused because the queue was full.",
            static_cast<double>(stats.rejected_requests));
    Counter("tandem:busy_seconds_total", "Time spent in iterations.", stats.busy_seconds);
    Counter("tandem:schedule_seconds_total", "Time spent by the strategy, most of it while the device runs.",
            stats.schedule.SumUs() / kUsPerSecond);
    Counter("tandem:gpu_busy_seconds_total", "Time the compute stream spent in iterations, by its own clock.",
            stats.gpu_busy_seconds);
    Counter("tandem:gpu_gap_seconds_total", "Time it waited between iterations that followed each other.",
            stats.gpu_gap_seconds);
    AddCpuTier(stats);
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

  void CacheConfig(const EngineStats& stats, const Engine& engine) {
    LabelMap info = labels_;
    info["block_size"] = std::to_string(stats.block_size);
    info["num_gpu_blocks"] = std::to_string(stats.gpu_blocks_total);
    info["num_cpu_blocks"] = std::to_string(stats.cpu_blocks_total);
    info["cache_dtype"] = KvFormatName(engine.kv_format(Tier::kGpu));
    info["cpu_cache_dtype"] = KvFormatName(engine.kv_format(Tier::kCpu));
    Add("vllm:cache_config_info", "Configuration of the KV cache.", prometheus::MetricType::Gauge, info, 1.0);
  }

 private:
  void AddPreemptions(const EngineStats& stats) {
    for (const PreemptionReason reason : kPreemptionReasons) {
      LabelMap labels = labels_;
      labels["reason"] = PreemptionReasonName(reason);
      Add("tandem:preemptions_total", "Preemptions, by where there was no room.",
          prometheus::MetricType::Counter, labels,
          static_cast<double>(stats.preemptions_by_reason[static_cast<size_t>(reason)]));
    }
  }

  void AddPrefixCache(const EngineStats& stats) {
    const auto cached = static_cast<double>(stats.prefix_hit_tokens);
    Counter("vllm:prompt_tokens_total", "Prompt tokens, computed or cached.",
            static_cast<double>(stats.prompt_tokens) + cached);
    Counter("vllm:prompt_tokens_cached_total", "Of those, cached.", cached);
    Counter("vllm:prefix_cache_queries_total", "Prompt tokens that were looked for in the prefix cache.",
            static_cast<double>(stats.prefix_queried_tokens));
    Counter("vllm:prefix_cache_hits_total", "Of those, found.", cached);
    PerTier("tandem:prefix_cache_blocks",
            "KV blocks of a tier that the prefix cache can find, in use or free.",
            stats.prefix_blocks[static_cast<size_t>(Tier::kGpu)],
            stats.prefix_blocks[static_cast<size_t>(Tier::kCpu)]);
    Counter("tandem:kv_events_total",
            "Events of cached blocks for routers, those that were dropped included.",
            static_cast<double>(stats.kv_events));
    Counter("tandem:kv_events_dropped_total", "Of those, dropped because too many waited to be sent.",
            static_cast<double>(stats.kv_events_dropped));
    Counter("tandem:recomputed_tokens_total", "Tokens computed again after a preemption.",
            static_cast<double>(stats.recomputed_tokens));
  }

  void AddIterationTokens(const TokenHistogram& tokens) {
    prometheus::ClientMetric::Histogram& histogram =
        Add("vllm:iteration_tokens_total", "Prompt tokens computed and tokens drawn by an iteration.",
            prometheus::MetricType::Histogram, labels_)
            .histogram;
    histogram.sample_count = tokens.count();
    histogram.sample_sum = static_cast<double>(tokens.sum());
    uint64_t cumulative = 0;
    for (size_t i = 0; i < TokenHistogram::kUpperBounds.size(); ++i) {
      cumulative += tokens.counts()[i];
      histogram.bucket.push_back({cumulative, static_cast<double>(TokenHistogram::kUpperBounds[i])});
    }
  }

  void AddStrategies(const EngineStats& stats) {
    const auto add = [&](const char* name, const char* help, prometheus::MetricType type, auto value_of) {
      for (const auto& [strategy, account] : stats.strategies) {
        LabelMap labels = labels_;
        labels["strategy"] = strategy;
        Add(name, help, type, labels, static_cast<double>(value_of(strategy, account)));
      }
    };
    add("tandem:strategy_current", "1: the strategy that is gone by now.", prometheus::MetricType::Gauge,
        [&](const std::string& strategy, const StrategyAccount&) {
          return strategy == stats.current_strategy ? 1 : 0;
        });
    add("tandem:strategy_changes_total", "Times that it was changed to this strategy.",
        prometheus::MetricType::Counter,
        [](const std::string&, const StrategyAccount& account) { return account.num_choices; });
    add("tandem:strategy_seconds_total", "Time of iterations while this strategy was gone by.",
        prometheus::MetricType::Counter,
        [](const std::string&, const StrategyAccount& account) { return account.seconds; });
    add("tandem:strategy_promised_tokens_total", "Tokens that the strategy was to make in that time.",
        prometheus::MetricType::Counter,
        [](const std::string&, const StrategyAccount& account) { return account.promised_tokens; });
    add("tandem:strategy_made_tokens_total", "Tokens drawn in that time.", prometheus::MetricType::Counter,
        [](const std::string&, const StrategyAccount& account) { return account.made_tokens; });
    for (size_t kind = 0; kind < kIterationKindNames.size(); ++kind) {
      LabelMap labels = labels_;
      labels["strategy"] = kIterationKindNames[kind];
      Add("tandem:strategy_cost_factor",
          "Times what the measured costs say: what iterations of the strategy take, as far as it is known.",
          prometheus::MetricType::Gauge, labels, stats.iteration_factors[kind]);
    }
    Add("tandem:cpu_attention_cost_factor",
        "Times what the measured costs say: what CPU attention takes, as far as it is known.",
        prometheus::MetricType::Gauge, labels_, stats.cpu_attention_factor);
    Add("tandem:gpu_beside_cpu_attention_cost_factor",
        "Likewise what the GPU does in iterations that wait for CPU attention.",
        prometheus::MetricType::Gauge, labels_, stats.gpu_beside_cpu_attention_factor);
  }

  void AddCpuTier(const EngineStats& stats) {
    for (const auto& [strategy, iterations] : stats.strategy_iterations) {
      LabelMap labels = labels_;
      labels["strategy"] = strategy;
      Add("tandem:strategy_iterations_total",
          "Iterations by the kind of plan: an iteration of a hybrid strategy without the cpu tier is "
          "gpu-only.",
          prometheus::MetricType::Counter, labels, static_cast<double>(iterations));
    }
    AddStrategies(stats);
    Counter("tandem:cpu_attention_busy_seconds_total", "Time spent in CPU attention, mean over its workers.",
            stats.cpu_attention_busy_seconds);
    Counter("tandem:cpu_attention_kv_bytes_total", "KV read by CPU attention, in bytes.",
            static_cast<double>(stats.cpu_attention_kv_bytes));
    Counter("tandem:cpu_attention_attended_kv_bytes_total",
            "KV that rows of CPU attention attended, in bytes: what several rows share is read once for all.",
            static_cast<double>(stats.cpu_attention_attended_kv_bytes));
    Counter("tandem:swapped_tokens_total",
            "Tokens whose KV changed its tier, prefills to the cpu tier included.",
            static_cast<double>(stats.swapped_tokens));
    Counter("tandem:cpu_tier_tokens_total", "Tokens generated with their KV in the cpu tier.",
            static_cast<double>(stats.cpu_tier_tokens));
    Counter("tandem:transit_visits_total",
            "Layers that chunks of long prompts in the cpu tier passed by themselves.",
            static_cast<double>(stats.transit_visits));
    Counter("tandem:rider_visits_total", "Visits of riding cohorts.",
            static_cast<double>(stats.rider_visits));
    Counter("tandem:rider_skips_total",
            "Visits of riding cohorts that were left out because their CPU attention was not done.",
            static_cast<double>(stats.rider_skips));
    Counter("tandem:predicted_seconds_total",
            "Time of iterations as the scheduler's costs predicted it; only iterations that were predicted.",
            stats.predicted_seconds);
    Counter("tandem:prediction_error_seconds_total",
            "Absolute differences between the predicted and the measured times of these iterations.",
            stats.prediction_error_seconds);
  }

  // The new metric, without a value.
  prometheus::ClientMetric& Add(const char* name, const char* help, prometheus::MetricType type,
                                const LabelMap& labels) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({name, help, type, {}});
    }
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    for (const auto& [key, text] : labels) metric.label.push_back({key, text});
    return metric;
  }
  void Add(const char* name, const char* help, prometheus::MetricType type, const LabelMap& labels,
           double value) {
    prometheus::ClientMetric& metric = Add(name, help, type, labels);
    if (type == prometheus::MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }
  void Gauge(const char* name, const char* help, double value) {
    Add(name, help, prometheus::MetricType::Gauge, labels_, value);
  }
  void Counter(const char* name, const char* help, double value) {
    Add(name, help, prometheus::MetricType::Counter, labels_, value);
  }
  void PerTier(const char* name, const char* help, int64_t gpu, int64_t cpu) {
    for (const auto& [tier, value] : {std::pair{"gpu", gpu}, std::pair{"cpu", cpu}}) {
      LabelMap labels = labels_;
      labels["tier"] = tier;
      Add(name, help, prometheus::MetricType::Gauge, labels, static_cast<double>(value));
    }
  }

  const LabelMap& labels_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace

struct ServerMetrics::Families {
  const Engine* engine;
  LabelMap labels;
  prometheus::Registry registry;
  prometheus::Histogram* time_to_first_token;
  prometheus::Histogram* inter_token_latency;
  prometheus::Histogram* time_per_output_token;
  prometheus::Histogram* request_time_per_output_token;
  prometheus::Histogram* e2e_latency;
  prometheus::Histogram* queue_time;
  prometheus::Histogram* inference_time;
  prometheus::Histogram* prefill_time;
  prometheus::Histogram* decode_time;
  prometheus::Histogram* prompt_tokens;
  prometheus::Histogram* generation_tokens;
  prometheus::Histogram* max_num_generation_tokens;
  prometheus::Histogram* params_max_tokens;
  prometheus::Histogram* params_n;
  prometheus::Counter* generated_tokens;
  prometheus::Counter* ignored_fields;
  std::map<std::string, prometheus::Counter*, std::less<>> success;

  Families(const Engine* engine_in, const std::string& model_name)
      : engine(engine_in), labels({{"model_name", model_name}, {"engine", "0"}}) {
    const Buckets token_buckets = OneTwoFiveBuckets(engine->max_model_len());
    time_to_first_token = Histogram("vllm:time_to_first_token_seconds", "Arrival to first token, in seconds.",
                                    kTimeToFirstTokenBuckets);
    inter_token_latency =
        Histogram("vllm:inter_token_latency_seconds", "Time between two tokens of a sequence, in seconds.",
                  kTokenLatencyBuckets);
    time_per_output_token = Histogram("vllm:time_per_output_token_seconds", "The same under its former name.",
                                      kTokenLatencyBuckets);
    request_time_per_output_token = Histogram(
        "vllm:request_time_per_output_token_seconds",
        "Mean time per token after the first, one value a sequence, in seconds.", kTokenLatencyBuckets);
    e2e_latency = Histogram("vllm:e2e_request_latency_seconds", "Arrival to last token, in seconds.",
                            kRequestLatencyBuckets);
    queue_time = Histogram("vllm:request_queue_time_seconds", "Arrival to first scheduled, in seconds.",
                           kRequestLatencyBuckets);
    inference_time = Histogram("vllm:request_inference_time_seconds",
                               "First scheduled to last token, in seconds.", kRequestLatencyBuckets);
    prefill_time = Histogram("vllm:request_prefill_time_seconds",
                             "First scheduled to first token, in seconds.", kRequestLatencyBuckets);
    decode_time = Histogram("vllm:request_decode_time_seconds", "First token to last token, in seconds.",
                            kRequestLatencyBuckets);
    prompt_tokens = Histogram("vllm:request_prompt_tokens", "Prompt tokens of a sequence.", token_buckets);
    generation_tokens =
        Histogram("vllm:request_generation_tokens", "Tokens generated for a sequence.", token_buckets);
    max_num_generation_tokens =
        Histogram("vllm:request_max_num_generation_tokens",
                  "Tokens generated for the longest of the n sequences of a prompt.", token_buckets);
    params_max_tokens =
        Histogram("vllm:request_params_max_tokens", "max_tokens of a sequence.", token_buckets);
    params_n = Histogram("vllm:request_params_n", "n of a request, one value a prompt.", kParamNBuckets);
    generated_tokens = &prometheus::BuildCounter()
                            .Name("vllm:generation_tokens_total")
                            .Help("Tokens generated, as the usage of answers counts them.")
                            .Register(registry)
                            .Add(labels);
    ignored_fields = &prometheus::BuildCounter()
                          .Name("tandem:ignored_request_fields_total")
                          .Help("Fields of requests that are unknown.")
                          .Register(registry)
                          .Add(labels);
    auto& counters = prometheus::BuildCounter()
                         .Name("vllm:request_success_total")
                         .Help("Sequences that ended, by reason.")
                         .Register(registry);
    for (const char* reason : {"stop", "length", "abort", "error"}) {
      LabelMap with_reason = labels;
      with_reason["finished_reason"] = reason;
      success[reason] = &counters.Add(with_reason);
    }
  }

  prometheus::Histogram* Histogram(const char* name, const char* help, const Buckets& buckets) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }
};

ServerMetrics::ServerMetrics(const Engine* engine, const std::string& model_name)
    : families_(std::make_unique<Families>(engine, model_name)) {}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::ObserveTimeToFirstToken(double seconds) {
  families_->time_to_first_token->Observe(seconds);
  if (window_ != nullptr) window_->AddTimeToFirstToken(seconds);
}

void ServerMetrics::ObserveInterTokenLatency(double seconds) {
  families_->inter_token_latency->Observe(seconds);
  families_->time_per_output_token->Observe(seconds);
  if (window_ != nullptr) window_->AddInterTokenLatency(seconds);
}

void ServerMetrics::CountGenerationTokens(int64_t num_tokens) {
  families_->generated_tokens->Increment(static_cast<double>(num_tokens));
}

void ServerMetrics::CountIgnoredFields(int64_t num_fields) {
  families_->ignored_fields->Increment(static_cast<double>(num_fields));
}

void ServerMetrics::ObserveFinished(const FinishedSequence& sequence) {
  const auto counter = families_->success.find(sequence.reason);
  if (counter != families_->success.end()) counter->second->Increment();
  families_->params_max_tokens->Observe(static_cast<double>(sequence.max_tokens));
  families_->prompt_tokens->Observe(static_cast<double>(sequence.prompt_tokens));
  families_->generation_tokens->Observe(static_cast<double>(sequence.generation_tokens));
  families_->e2e_latency->Observe(sequence.e2e_seconds);
  if (!sequence.phases) return;
  const SequencePhases& phases = *sequence.phases;
  families_->queue_time->Observe(phases.queue_seconds);
  families_->prefill_time->Observe(phases.prefill_seconds);
  families_->decode_time->Observe(phases.decode_seconds);
  families_->inference_time->Observe(phases.prefill_seconds + phases.decode_seconds);
  if (sequence.generation_tokens > 1) {
    const double seconds = phases.decode_seconds / static_cast<double>(sequence.generation_tokens - 1);
    families_->request_time_per_output_token->Observe(seconds);
    if (window_ != nullptr) window_->AddTimePerOutputToken(seconds);
  }
}

void ServerMetrics::ObserveFinished(const FinishedPrompt& prompt) {
  families_->params_n->Observe(static_cast<double>(prompt.n));
  families_->max_num_generation_tokens->Observe(static_cast<double>(prompt.max_generation_tokens));
}

void ServerMetrics::Watch(LatencyWindow* window) {
  window_ = window;
}

std::string ServerMetrics::Render() const {
  const EngineStats stats = families_->engine->Stats();
  EngineFamilies engine_families(stats, families_->labels);
  engine_families.CacheConfig(stats, *families_->engine);
  std::vector<prometheus::MetricFamily> all = engine_families.Take();
  std::vector<prometheus::MetricFamily> own = families_->registry.Collect();
  all.insert(all.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return out.str();
}

}  // namespace tandem
