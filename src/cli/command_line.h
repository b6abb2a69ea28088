// Flags and environment to plain options. The only place that knows the flag library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine_options.h"
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
  std::string json;           // file for the result; empty: none
  std::string dump_workload;  // file for the requests, and nothing is run; empty: run
  std::string command;        // as it was typed
};

// What the program is asked to do, or the exit code if that is settled (help, version: 0; wrong usage: 2;
// what there is to say has been printed).
using CommandLine = std::variant<int, ServeOptions, GenerateOptions, BenchOptions, DoctorOptions>;
CommandLine ParseCommandLine(int argc, const char* const* argv);

// Name under which a model is served if --served-model-name gives none: the folder's or file's, without
// ".gguf".
std::string DefaultModelName(const std::string& model_path);

}  // namespace tandem
