// Iterations of the whole engine next to the time that the GPU's memory and arithmetic allow: decodes of a
// batch at about 1,024 tokens of context, prefills of 2,048 tokens.
//
//   bench_engine --dummy llama-3.1-8b --device cuda --json FILE
//
// Times are the device's own: from the first to the last operation of an iteration, and the gap to the next,
// with --no-async-scheduling that in which the device waits for the host.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cli/engine_flags.h"
#include "engine/engine.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

struct Rates {
  double bytes_per_s = 4.65e12;
  double flops_per_s = 808e12;
};

// What a token costs in the layers and in the lm_head.
struct ModelCost {
  explicit ModelCost(const Engine& engine) {
    const ModelConfig& config = engine.model_config();
    const auto hidden = static_cast<double>(config.hidden_size);
    const auto q_width = static_cast<double>(config.num_heads * config.head_dim);
    const auto kv_width = static_cast<double>(config.num_kv_heads * config.head_dim);
    const auto layers = static_cast<double>(config.num_layers);
    layer_parameters = layers * (hidden * (q_width + 2 * kv_width) + q_width * hidden +
                                 3 * hidden * static_cast<double>(config.intermediate_size));
    head_parameters = hidden * static_cast<double>(config.vocab_size);
    weight_bytes = layers * engine.layer_weight_bytes() + engine.head_weight_bytes();
    kv_bytes_per_token = static_cast<double>(engine.kv_token_bytes(Tier::kGpu));
    attention_flops_per_pair = layers * 4 * q_width;
  }
  double layer_parameters = 0;
  double head_parameters = 0;
  double weight_bytes = 0;
  double kv_bytes_per_token = 0;
  double attention_flops_per_pair = 0;  // of one query token with one key token
};

// Requests of one measurement and how far they are.
class Group {
 public:
  Group(Engine* engine, int64_t num_requests, int64_t prompt_len, int64_t max_tokens)
      : engine_(engine), num_outputs_(static_cast<size_t>(num_requests), 0) {
    std::mt19937 random(1);
    std::uniform_int_distribution<int32_t> token(0,
                                                 static_cast<int32_t>(engine->model_config().vocab_size) - 1);
    for (int64_t i = 0; i < num_requests; ++i) {
      RequestSpec spec;
      for (int64_t j = 0; j < prompt_len; ++j) spec.prompt_tokens.push_back(token(random));
      spec.sampling.temperature = 0;
      spec.sampling.max_tokens = max_tokens;
      spec.sampling.ignore_eos = true;
      const auto index = static_cast<size_t>(i);
      const auto id = engine->Submit(std::move(spec), [this, index](RequestOutput output) {
        const std::lock_guard lock(mutex_);
        num_outputs_[index] += static_cast<int64_t>(output.tokens.size());
        if (output.finish_reason != FinishReason::kNone) ++num_ended_;
        changed_.notify_all();
      });
      TANDEM_CHECK(id.ok(), "{}", id.error().message);
    }
  }
  ~Group() {
    engine_->CancelAll();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_ended_ == std::ssize(num_outputs_); });
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Blocks until every request has so many tokens; returns the mean.
  double WaitForTokens(int64_t least) {
    std::unique_lock lock(mutex_);
    const auto reached = [&] { return *std::min_element(num_outputs_.begin(), num_outputs_.end()) >= least; };
    changed_.wait(lock, [&] { return reached() || num_ended_ == std::ssize(num_outputs_); });
    TANDEM_CHECK(reached(), "requests have ended with fewer than {} tokens", least);
    double sum = 0;
    for (const int64_t count : num_outputs_) sum += static_cast<double>(count);
    return sum / static_cast<double>(num_outputs_.size());
  }

 private:
  Engine* engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> num_outputs_;
  int64_t num_ended_ = 0;
};

ordered_json MeasureDecode(Engine* engine, const ModelCost& cost, const Rates& rates, int64_t batch,
                           int64_t context) {
  constexpr int64_t kWarmTokens = 12;
  constexpr int64_t kMeasuredTokens = 48;
  // While the others' prompts are computed the first ones go on.
  const int64_t prefill_iterations = batch * context / engine->options().max_num_batched_tokens;
  const int64_t prompt_len = context - kWarmTokens - kMeasuredTokens / 2 - prefill_iterations / 2;
  Group group(engine, batch, prompt_len, engine->max_model_len() - prompt_len);
  const double first = group.WaitForTokens(kWarmTokens);
  const EngineStats before = engine->Stats();
  const double last = group.WaitForTokens(kWarmTokens + kMeasuredTokens);
  const EngineStats after = engine->Stats();

  const auto iterations = static_cast<double>(after.iterations - before.iterations);
  const double busy_us = 1e6 * (after.gpu_busy_seconds - before.gpu_busy_seconds) / iterations;
  const double gap_us = 1e6 * (after.gpu_gap_seconds - before.gpu_gap_seconds) / iterations;
  const double mean_context = static_cast<double>(prompt_len) + (first + last) / 2;
  const auto rows = static_cast<double>(batch);
  const double kv_bytes = rows * mean_context * cost.kv_bytes_per_token;
  const double linear_flops = 2 * rows * (cost.layer_parameters + cost.head_parameters);
  const double memory_us = 1e6 * (cost.weight_bytes + kv_bytes) / rates.bytes_per_s;
  const double flops_us =
      1e6 * (linear_flops + rows * mean_context * cost.attention_flops_per_pair) / rates.flops_per_s;
  const double floor_us = std::max(memory_us, flops_us);
  // Products and attention follow each other, so each has a floor of its own.
  const double floor_by_part_us =
      std::max(1e6 * cost.weight_bytes / rates.bytes_per_s, 1e6 * linear_flops / rates.flops_per_s) +
      1e6 * kv_bytes / rates.bytes_per_s;
  // Of the iterations, enqueued while the one before ran.
  const double ahead_share =
      static_cast<double>(after.iterations_ahead - before.iterations_ahead) / iterations;
  const DurationHistogram spread = after.iteration.Since(before.iteration);
  ordered_json row = {{"batch", batch},
                      {"mean_context", mean_context},
                      {"iterations", iterations},
                      {"iteration_us", busy_us},
                      {"iteration_p50_us", spread.QuantileUs(0.5)},
                      {"iteration_p99_us", spread.QuantileUs(0.99)},
                      {"floor_us", floor_us},
                      {"of_floor", busy_us / floor_us},
                      {"floor_by_part_us", floor_by_part_us},
                      {"of_floor_by_part", busy_us / floor_by_part_us},
                      {"gap_us", gap_us},
                      {"gap_share", gap_us / (busy_us + gap_us)},
                      {"ahead_share", ahead_share},
                      {"schedule_us", after.schedule.Since(before.schedule).MeanUs()}};
  std::cout << fmt::format(
      "decode  batch {:4d}  context {:6.0f}  iteration {:9.1f} us  floor {:9.1f} us  x{:.3f} (by part "
      "x{:.3f})  gap {:6.1f} us ({:.2f} %)  ahead {:.0f} %\n",
      batch, mean_context, busy_us, floor_us, busy_us / floor_us, busy_us / floor_by_part_us, gap_us,
      100 * gap_us / (busy_us + gap_us), 100 * ahead_share);
  return row;
}

ordered_json MeasurePrefill(Engine* engine, const ModelCost& cost, const Rates& rates, int64_t num_prompts,
                            int64_t prompt_len) {
  constexpr int kRounds = 5;
  EngineStats before;
  for (int round = 0; round <= kRounds; ++round) {
    if (round == 1) before = engine->Stats();  // the first one warms up
    Group group(engine, num_prompts, prompt_len, 1);
    group.WaitForTokens(1);
  }
  const EngineStats after = engine->Stats();
  const double seconds = (after.gpu_busy_seconds - before.gpu_busy_seconds) / kRounds;
  const auto prompts = static_cast<double>(num_prompts);
  const auto length = static_cast<double>(prompt_len);
  // Causal: token i attends to i tokens.
  const double flops = prompts * (2 * length * cost.layer_parameters + 2 * cost.head_parameters +
                                  length * (length + 1) / 2 * cost.attention_flops_per_pair);
  std::cout << fmt::format("prefill {:4d} x {} tokens  {:9.1f} us  {:6.1f} TFLOP/s  {:.3f} of {:.0f}\n",
                           num_prompts, prompt_len, 1e6 * seconds, flops / seconds / 1e12,
                           flops / seconds / rates.flops_per_s, rates.flops_per_s / 1e12);
  return {{"prompts", num_prompts},
          {"prompt_len", prompt_len},
          {"us", 1e6 * seconds},
          {"tflops", flops / seconds / 1e12},
          {"of_peak", flops / seconds / rates.flops_per_s}};
}

int Run(int argc, char** argv) {
  CLI::App app("Iterations of the engine next to their floor");
  EngineFlags flags;
  flags.options.device = "cuda";
  flags.options.max_num_batched_tokens = 8192;
  // Its prompts come again and again, to be computed each time.
  flags.options.prefix_caching = false;
  AddEngineFlags(&app, &flags);
  std::vector<int64_t> batches = {1, 8, 32, 128, 256};
  std::vector<int64_t> prefills = {1, 4, 8};
  int64_t context = 1024;
  int64_t prompt_len = 2048;
  std::string json;
  Rates rates;
  app.add_option("--batches", batches, "Batch sizes of the decodes")->delimiter(',');
  app.add_option("--prefills", prefills, "Prompts at once")->delimiter(',');
  app.add_option("--context", context, "Mean context of the decodes");
  app.add_option("--prompt-len", prompt_len, "Tokens of a prompt");
  app.add_option("--memory-rate", rates.bytes_per_s, "Bytes a second that the floor assumes");
  app.add_option("--flop-rate", rates.flops_per_s, "FLOP/s that the floor assumes");
  app.add_option("--json", json, "File for the result");
  CLI11_PARSE(app, argc, argv);
  std::cout << std::unitbuf;  // each line as it comes, also into a file
  auto options = ToEngineOptions(flags);
  if (options.ok() && options->max_model_len == 0) options->max_model_len = 4 * std::max(context, prompt_len);
  auto engine = options.ok() ? Engine::Create(*options) : Result<std::unique_ptr<Engine>>(options.error());
  if (!engine.ok()) {
    std::cerr << "bench_engine: " << engine.error().message << "\n";
    return 1;
  }
  const ModelCost cost(**engine);
  ordered_json result = {{"model", (*engine)->options().served_model_name},
                         {"dtype", DTypeName(*(*engine)->options().dtype)},
                         {"weight_bytes", cost.weight_bytes},
                         {"device", (*engine)->device_description()},
                         {"max_num_batched_tokens", (*engine)->options().max_num_batched_tokens},
                         {"floor_bytes_per_s", rates.bytes_per_s},
                         {"floor_flops_per_s", rates.flops_per_s}};
  for (int i = 0; i < argc; ++i) result["command"].push_back(argv[i]);
  for (const int64_t batch : batches)
    result["decode"].push_back(MeasureDecode(engine->get(), cost, rates, batch, context));
  for (const int64_t prompts : prefills)
    result["prefill"].push_back(MeasurePrefill(engine->get(), cost, rates, prompts, prompt_len));
  if (!json.empty()) std::ofstream(json) << result.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::Run(argc, argv);
}
