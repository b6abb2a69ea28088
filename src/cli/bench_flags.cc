#include "cli/bench_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/param_error.h"
#include "cli/env_flag.h"
#include "cli/secret_arguments.h"
#include "http_client/server_url.h"

namespace tandem {
namespace {

constexpr int64_t kMaxRequests = int64_t{1} << 24;
constexpr int64_t kMaxRounds = 1'000;
constexpr double kMaxSeconds = 86400.0;

Result<std::optional<double>> ParseRate(const std::string& text) {
  if (text.empty()) return std::optional<double>();
  if (text == "inf") return std::optional(std::numeric_limits<double>::infinity());
  double rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc() || end != text.data() + text.size()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "rate", "'{}' is neither a number nor inf", text);
  }
  return std::optional(rate);
}

std::optional<ArrivalKind> KindOf(const std::string& name) {
  if (name == "poisson") return ArrivalKind::kPoisson;
  if (name == "constant") return ArrivalKind::kConstant;
  if (name == "trace") return ArrivalKind::kTrace;
  return std::nullopt;
}

void AddArrivalFlags(CLI::App* app, OnlineFlags* flags) {
  AddFlag(
      app, "rate", &flags->rate,
      "Requests a second; inf: all at once (default). With --arrivals trace: the trace's times are scaled "
      "to this mean rate");
  AddFlag(app, "arrivals", &flags->arrivals,
          "poisson (default), constant, or trace: the workload's own times (default with --time-scale)")
      ->check(CLI::IsMember({"poisson", "constant", "trace"}));
  AddFlag(app, "time-scale", &flags->time_scale,
          "Factor of the trace's times: 0.5 sends twice as fast (default: 1)")
      ->check(CLI::PositiveNumber);
}

void AddLoadFlags(CLI::App* app, OnlineBenchOptions* run) {
  AddFlag(app, "max-concurrency", &run->max_concurrency,
          "Requests under way at most: those that are due meanwhile wait, and count from when they are sent; "
          "0: no limit")
      ->check(CLI::Range(int64_t{0}, kMaxRequests))
      ->capture_default_str();
  AddFlag(app, "duration", &run->duration_s, "Seconds in which requests are sent; 0: all of them")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->capture_default_str();
  app->add_flag(
      "--end-sessions", run->end_sessions,
      "Sessions end with --duration: turns that would be due later are not sent, and --deadline counts "
      "from then on");
  AddFlag(app, "warm-up", &run->warm_up_s, "Requests due in the first so many seconds do not count")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->capture_default_str();
  AddFlag(app, "cool-down", &run->cool_down_s,
          "Requests due in the last so many seconds of the arrivals do not count")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->capture_default_str();
  AddFlag(app, "deadline", &run->deadline_s,
          "Seconds after which a request that is not done is cancelled and has failed; 0: none")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->capture_default_str();
}

void AddServerTargetFlags(CLI::App* app, BenchOnlineOptions* options) {
  AddFlag(app, "url", &options->url,
          "An OpenAI-compatible server, as http(s)://HOST:PORT, in place of an engine in this process");
  AddFlag(app, "api-key", &options->api_key, "Key for the server");
  AddFlag(
      app, "ssl-ca-certs", &options->ssl_ca_certs,
      "PEM file of the authorities that the server's certificate is checked against (default: the system's)");
  AddFlag(
      app, "vocab-size", &options->vocab_size,
      "Prompts have token ids below this (with --url; default: what MODEL or the server says, else 32000)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  AddFlag(app, "extra-body", &options->extra_body,
          "JSON object whose fields every request to --url has as well, or instead");
}

constexpr const char* kWorkloadText =
    "azure-code, azure-conv, osc, reasoning, synthetic:in=1000,out=100, trace:FILE (Mooncake's format), a "
    "CSV "
    "file, or for bench online agents:sessions=N,turns=12,... and chat:...";

void AddWorkloadFlag(CLI::App* app, std::string* workload) {
  app->add_option("--workload", *workload, kWorkloadText)->required();
}

// What all benchmarks share.
void AddResultFlags(CLI::App* app, int64_t* num_warmup, double* watts_per_core, std::string* json) {
  app->add_option("--num-warmup", *num_warmup, "Requests that run before, unmeasured")
      ->check(CLI::Range(int64_t{0}, kMaxRequests))
      ->capture_default_str();
  constexpr double kMaxWatts = 1000;
  app->add_option("--watts-per-core", *watts_per_core,
                  "Watts of a core that is busy, for joules a token where the host's own counters (RAPL) "
                  "cannot be read; 0: not said")
      ->check(CLI::Range(0.0, kMaxWatts))
      ->capture_default_str();
  app->add_option("--json", *json, "File for the result as one JSON object");
}

void AddDumpFlag(CLI::App* app, std::string* dump_workload) {
  app->add_option("--dump-workload", *dump_workload,
                  "Write the requests to this file as JSON and run nothing");
}

CLI::Option* AddSecondsFlag(CLI::App* app, const std::string& name, double* value, const std::string& text) {
  return app->add_option(name, *value, text)->check(CLI::Range(0.0, kMaxSeconds))->capture_default_str();
}

void AddOfflineFlags(CLI::App* app, BenchOptions* options) {
  AddResultFlags(app, &options->num_warmup, &options->watts_per_core, &options->json);
  app->add_option("--num-requests", options->num_requests,
                  "Requests in all; a trace begins again when it has not as many")
      ->check(CLI::Range(int64_t{1}, kMaxRequests))
      ->capture_default_str();
  CLI::Option* steady_start = app->add_flag(
      "--steady-start", options->steady_start,
      "Begin amid the work: the tiers hold requests that have made parts of their output, as many as after a "
      "while. Their KV is not that of their tokens: what is generated means nothing, how long it takes does");
  app->add_flag(
         "--closed-loop", options->closed_loop,
         "Nobody waits: as many requests as began are there at any time, the next is sent when one ends")
      ->needs(steady_start);
  CLI::Option* duration =
      app->add_option("--duration", options->duration_s,
                      "Stop after so many seconds and count what came in that time; 0: run all requests")
          ->check(CLI::Range(0.0, kMaxSeconds))
          ->capture_default_str();
  app->add_option("--warm-up", options->warm_up_s,
                  "Seconds of --duration, at its beginning, that do not count; by default a tenth of it")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->needs(duration);
}

Status CheckRateSearch(const BenchOnlineOptions& options) {
  if (options.find_rate_at_latency_s == 0) return {};
  const char* flag = "find-rate-at-latency";
  const std::optional<double>& rate = options.arrivals.rate;
  if (!rate || !std::isfinite(*rate) || options.arrivals.kind == ArrivalKind::kTrace) {
    return MakeParamError(ErrorCode::kInvalidArgument, flag,
                          "the search begins with a --rate that is a number, and not with a trace's times");
  }
  if (options.run.duration_s <= 0) {
    return MakeParamError(ErrorCode::kInvalidArgument, flag,
                          "each run is to take as long: this needs a --duration");
  }
  if (options.run.max_concurrency > 0) {
    return MakeParamError(ErrorCode::kInvalidArgument, flag,
                          "with --max-concurrency requests do not arrive at a rate");
  }
  return {};
}

}  // namespace

void AddBenchFlags(CLI::App* app, BenchOptions* options) {
  AddWorkloadFlag(app, &options->workload);
  AddOfflineFlags(app, options);
  AddDumpFlag(app, &options->dump_workload);
}

void AddCompareFlags(CLI::App* app, CompareFlags* flags) {
  BenchCompareOptions* options = &flags->options;
  app->add_option("--workload", options->workloads,
                  std::string(kWorkloadText) + "; may be given several times")
      ->required()
      ->allow_extra_args(false);
  AddFlag(app, "strategies", &flags->strategies,
          "Separated by commas; async:async-cohorts=1 is async with --async-cohorts 1")
      ->capture_default_str();
  CLI::Option* rate =
      app->add_option("--rate", options->rates,
                      "Requests a second that arrive (Poisson), as in bench online; may be given several "
                      "times. Without it all are there at once, as in bench offline")
          ->check(CLI::PositiveNumber)
          ->allow_extra_args(false);
  app->add_option("--repeat", options->repeat,
                  "Rounds: everything once, then everything again; the table has medians and their spread")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, kMaxRounds));
  AddSecondsFlag(app, "--cool-down", &options->cool_down_s, "As for bench online")->needs(rate);
  AddSecondsFlag(app, "--deadline", &options->deadline_s, "As for bench online")->needs(rate);
  AddOfflineFlags(app, &options->run);
}

void AddOnlineFlags(CLI::App* app, OnlineFlags* flags) {
  BenchOnlineOptions* options = &flags->options;
  AddWorkloadFlag(app, &options->workload);
  AddResultFlags(app, &options->run.num_warmup, &options->watts_per_core, &options->json);
  AddDumpFlag(app, &options->dump_workload);
  app->add_option(
         "--num-requests", options->num_requests,
         "Requests in all; a trace begins again when it has not as many (default: as many as are due "
         "in --duration, else 1000)")
      ->check(CLI::Range(int64_t{1}, kMaxRequests));
  AddArrivalFlags(app, flags);
  AddFlag(app, "find-rate-at-latency", &options->find_rate_at_latency_s,
          "Seconds a token (mean of latency / output tokens): runs at other rates too, from --rate on, to "
          "find the "
          "highest at which they are kept")
      ->check(CLI::PositiveNumber);
  AddLoadFlags(app, &options->run);
  AddServerTargetFlags(app, options);
}

Result<BenchOptions> MakeBenchOptions(const EngineFlags& engine_flags, const BenchOptions& flags) {
  BenchOptions options = flags;
  TANDEM_ASSIGN_OR_RETURN(options.engine, ToEngineOptions(engine_flags));
  if (options.duration_s > 0 && options.warm_up_s >= options.duration_s) {
    return MakeParamError(ErrorCode::kInvalidArgument, "warm-up",
                          "{} s of a duration of {} s leave nothing to count", options.warm_up_s,
                          options.duration_s);
  }
  return options;
}

Result<BenchCompareOptions> MakeBenchCompareOptions(const EngineFlags& engine_flags,
                                                    const CompareFlags& flags) {
  BenchCompareOptions options = flags.options;
  TANDEM_ASSIGN_OR_RETURN(options.run, MakeBenchOptions(engine_flags, flags.options.run));
  if (options.run.engine.strategy != EngineOptions().strategy) {
    return MakeParamError(ErrorCode::kInvalidArgument, "strategy",
                          "what is compared is said by --strategies");
  }
  if (!options.rates.empty() && options.run.steady_start) {
    return MakeParamError(ErrorCode::kInvalidArgument, "steady-start",
                          "requests that arrive one after the other begin at their beginning");
  }
  TANDEM_ASSIGN_OR_RETURN(options.strategies,
                          ParseStrategyChoices(flags.strategies, options.run.engine.async_cohorts));
  return options;
}

Result<BenchOnlineOptions> MakeBenchOnlineOptions(const EngineFlags& engine_flags, const OnlineFlags& flags) {
  BenchOnlineOptions options = flags.options;
  TANDEM_ASSIGN_OR_RETURN(options.arrivals.rate, ParseRate(flags.rate));
  options.arrivals.kind = KindOf(flags.arrivals);
  if (flags.time_scale > 0) options.arrivals.time_scale = flags.time_scale;
  TANDEM_RETURN_IF_ERROR(PlanArrivals(options.arrivals));
  TANDEM_RETURN_IF_ERROR(CheckRateSearch(options));
  if (options.url.empty()) {
    if (!options.extra_body.empty()) {
      return MakeParamError(ErrorCode::kInvalidArgument, "extra-body",
                            "these are fields of requests to a server (--url)");
    }
    if (options.vocab_size > 0) {
      return MakeParamError(ErrorCode::kInvalidArgument, "vocab-size",
                            "an engine knows its vocabulary: this is for a server (--url)");
    }
    TANDEM_ASSIGN_OR_RETURN(options.engine, ToEngineOptions(engine_flags));
    return options;
  }
  if (options.watts_per_core > 0) {
    return MakeParamError(ErrorCode::kInvalidArgument, "watts-per-core",
                          "what a server (--url) uses is not known here");
  }
  TANDEM_ASSIGN_OR_RETURN(const ServerUrl url, ParseServerUrl(options.url));
  if (!options.extra_body.empty() && !nlohmann::json::parse(options.extra_body, nullptr, false).is_object()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "extra-body", "this is not a JSON object");
  }
  if (!url.https && !options.ssl_ca_certs.empty()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "ssl-ca-certs", "this is for a --url with https://");
  }
  if (options.api_key.empty()) TANDEM_RETURN_IF_ERROR(CheckSecretVariable("api-key", "TANDEM_API_KEY"));
  EngineFlags resolved = engine_flags;
  TANDEM_RETURN_IF_ERROR(ResolveNames(&resolved));
  const EngineOptions& engine = resolved.options;
  if (!engine.model.empty() && !engine.dummy.empty()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "model", "a model and --dummy were both given");
  }
  options.engine = engine;
  return options;
}

}  // namespace tandem
