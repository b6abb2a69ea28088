// Flags and environment to plain options. The only place that knows the flag library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/online_bench.h"
#include "bench/strategy_choice.h"
#include "engine/engine_options.h"
#include "forecast/forecast.h"
#include "server/server.h"

namespace tandem {

struct ServeOptions {
  EngineOptions engine;
  ServerOptions server;
};

struct GenerateOptions {
  EngineOptions engine;
  std::string prompt;
  bool chat = false;  // prompt is a user message, put through the chat template
  std::string system;
  int64_t max_tokens = 128;
  std::optional<double> temperature;  // absent: the model's generation config, as for the others
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

struct DoctorOptions {
  std::string model;  // empty: the machine only
  std::optional<DType> dtype;
  bool json = false;
};

struct BenchOptions {
  EngineOptions engine;
  std::string workload;
  int64_t num_requests = 1000;
  int64_t num_warmup = 0;
  bool steady_start = false;
  bool closed_loop = false;
  double duration_s = 0;      // 0: until all requests are done
  double warm_up_s = -1;      // of it; -1: a tenth
  double watts_per_core = 0;  // of a busy core, where RAPL cannot be read; 0: not said
  std::string json;           // file for the result; empty: none
  std::string dump_workload;  // file for the requests, and nothing is run; empty: run
  std::string command;        // as it was typed
};

struct BenchOnlineOptions {
  EngineOptions
      engine;  // with a url only model, dummy, served_model_name, max_model_len and seed have a meaning
  std::string workload;
  int64_t num_requests = 0;  // 0: as many as are due in the duration, else 1000
  ArrivalOptions arrivals;
  OnlineBenchOptions run;     // but its seed, which is the engine's, and its meter
  double watts_per_core = 0;  // as for BenchOptions
  std::string url;            // empty: an engine in this process
  std::string api_key;
  std::string ssl_ca_certs;  // PEM file of authorities; empty: the system's
  int64_t vocab_size = 0;    // 0: from the model or the server
  std::string extra_body;    // JSON object: further fields of every request; empty: none
  std::string json;          // as for BenchOptions, these three
  std::string dump_workload;
  std::string command;
  // Seconds a token, at which the highest rate is looked for, from the rate of arrivals on; 0: one run at
  // that rate.
  double find_rate_at_latency_s = 0;
  std::optional<uint64_t> prompt_seed;  // absent: the engine's
};

struct BenchCompareOptions {
  BenchOptions run;  // of each strategy and workload; but workload, and the engine's strategy
  std::vector<std::string> workloads;
  std::vector<StrategyChoice> strategies;
  // Requests a second, at each of which every workload arrives (online). Empty: all at once (offline).
  std::vector<double> rates;
  int64_t repeat = 1;      // rounds: everything once, then everything again
  double cool_down_s = 0;  // as in OnlineBenchOptions, these two
  double deadline_s = 0;
};

struct PlanOptions {
  ForecastOptions forecast;
  double price = 0;  // dollars an hour; 0: not said
  std::string json;  // file for the result; empty: none
};

struct ProfileCommandOptions {
  EngineOptions engine;
  std::string json;  // file for the result; empty: none
};

// What the program is asked to do, or the exit code if that is settled (help, version: 0; wrong usage: 2;
// what there is to say has been printed).
using CommandLine = std::variant<int, ServeOptions, GenerateOptions, BenchOptions, BenchOnlineOptions,
                                 BenchCompareOptions, ProfileCommandOptions, PlanOptions, DoctorOptions>;
CommandLine ParseCommandLine(int argc, const char* const* argv);

// Name under which a model is served if --served-model-name gives none: the folder's or file's, without
// ".gguf".
std::string DefaultModelName(const std::string& model_path);

}  // namespace tandem
