#include "cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "cli/bench_flags.h"
#include "cli/engine_flags.h"
#include "cli/size_flag.h"

namespace tandem {
namespace {

constexpr int kUsageError = 2;

struct ServerFlags {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string api_key;
  std::string max_body_size = "32MiB";
  std::vector<std::string> allowed_origins{"*"};
};

void AddServerFlags(CLI::App* app, ServerFlags* flags) {
  app->add_option("--host", flags->host, "Address to listen on")
      ->envname("TANDEM_HOST")
      ->capture_default_str();
  app->add_option("--port", flags->port, "Port to listen on; 0: any free one")
      ->envname("TANDEM_PORT")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_option("--api-key", flags->api_key, "Key that clients must send (Authorization: Bearer KEY)")
      ->envname("TANDEM_API_KEY");
  app->add_option("--max-body-size", flags->max_body_size, "Largest request body, as SIZE in bytes")
      ->envname("TANDEM_MAX_BODY_SIZE")
      ->capture_default_str();
  app->add_option("--allowed-origins", flags->allowed_origins,
                  "Origins of web pages that may use the API (CORS)")
      ->envname("TANDEM_ALLOWED_ORIGINS")
      ->delimiter(',')
      ->capture_default_str();
}

Result<ServeOptions> MakeServeOptions(const EngineFlags& engine_flags, const ServerFlags& flags) {
  ServeOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.engine, ToEngineOptions(engine_flags));
  TANDEM_ASSIGN_OR_RETURN(const int64_t max_body_bytes, ParseByteSize(flags.max_body_size));
  options.server.http.host = flags.host;
  options.server.http.port = static_cast<uint16_t>(flags.port);
  options.server.http.max_body_bytes = static_cast<size_t>(max_body_bytes);
  options.server.api_key = flags.api_key;
  options.server.allowed_origins = flags.allowed_origins;
  options.server.served_model_name = options.engine.served_model_name;
  return options;
}

void AddGenerateFlags(CLI::App* app, GenerateOptions* options) {
  app->add_option("-p,--prompt", options->prompt, "Text to go on from")->required();
  app->add_flag("--chat", options->chat, "The prompt is a chat message");
  app->add_option("--system", options->system, "System message, with --chat");
  app->add_option("-n,--max-tokens", options->max_tokens, "Tokens to generate at most")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  app->add_option("--temperature", options->temperature, "0: greedy")->check(CLI::Range(0.0, 2.0));
  app->add_option("--top-p", options->top_p, "Nucleus sampling")->check(CLI::Range(0.0, 1.0));
  app->add_option("--top-k", options->top_k, "Sample from the k best; 0: all")
      ->check(CLI::Range(int64_t{-1}, int64_t{std::numeric_limits<int32_t>::max()}));
  app->add_option("--stop", options->stop, "Stop before this text; may be given several times");
  app->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end-of-sequence token");
}

// The command line as a shell would take it again.
std::string CommandText(int argc, const char* const* argv) {
  constexpr std::string_view kPlain = "_-+=:,./%@";
  std::string text;
  for (int i = 0; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (i > 0) text += ' ';
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos;
    });
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

int UsageError(const Error& error) {
  std::fprintf(stderr, "tandem: %s%s%s\n", error.param.empty() ? "" : ("--" + error.param + ": ").c_str(),
               error.message.c_str(), " (see tandem --help)");
  return kUsageError;
}

LogLevel LogLevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warn") return LogLevel::kWarn;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

}  // namespace

std::string DefaultModelName(const std::string& model_path) {
  std::filesystem::path path = std::filesystem::path(model_path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::string name = path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
  return name.empty() || name == "." ? "model" : name;
}

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app("Tandem serves large language models.", "tandem");
  app.set_version_flag("--version", std::string("tandem ") + TANDEM_VERSION);
  app.require_subcommand(1);
  EngineFlags serve_engine;
  ServerFlags server_flags;
  EngineFlags generate_engine;
  GenerateOptions generate;
  EngineFlags offline_engine;
  BenchOptions offline;
  EngineFlags online_engine;
  OnlineFlags online;
  EngineFlags compare_engine;
  CompareFlags compare;
  EngineFlags profile_engine;
  ProfileCommandOptions profile;
  DoctorOptions doctor;
  std::string doctor_dtype = "auto";

  CLI::App* serve_app = app.add_subcommand("serve", "OpenAI-compatible server and web page");
  AddEngineFlags(serve_app, &serve_engine);
  AddServerFlags(serve_app, &server_flags);
  CLI::App* generate_app = app.add_subcommand("generate", "Continues a text on standard output");
  AddEngineFlags(generate_app, &generate_engine);
  AddGenerateFlags(generate_app, &generate);
  CLI::App* bench_app = app.add_subcommand("bench", "Measures throughput and latencies");
  bench_app->require_subcommand(1);
  CLI::App* offline_app = bench_app->add_subcommand("offline", "All requests at once");
  AddEngineFlags(offline_app, &offline_engine);
  AddBenchFlags(offline_app, &offline);
  CLI::App* online_app = bench_app->add_subcommand("online", "Requests that arrive one after the other");
  AddEngineFlags(online_app, &online_engine);
  AddOnlineFlags(online_app, &online);
  CLI::App* compare_app =
      bench_app->add_subcommand("compare", "Several strategies and workloads side by side, in one engine");
  AddEngineFlags(compare_app, &compare_engine);
  AddCompareFlags(compare_app, &compare);
  CLI::App* profile_app =
      app.add_subcommand("profile", "Measures what the parts of an iteration cost, for the scheduler");
  AddEngineFlags(profile_app, &profile_engine);
  profile_app->add_option("--json", profile.json, "File for the result as one JSON object");
  CLI::App* doctor_app =
      app.add_subcommand("doctor", "Says what this machine offers and what would limit it");
  doctor_app->add_option("model", doctor.model, "Model folder or .gguf file: would it fit?");
  doctor_app->add_option("--dtype", doctor_dtype, "Type of weights and KV cache: auto, bf16, fp32")
      ->envname("TANDEM_DTYPE");
  doctor_app->add_flag("--json", doctor.json, "One JSON object");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version
    std::fprintf(stderr, "tandem: %s (see tandem --help)\n", error.what());
    return kUsageError;
  }
  if (serve_app->parsed()) {
    SetLogLevel(LogLevelOf(serve_engine.log_level));
    auto options = MakeServeOptions(serve_engine, server_flags);
    if (!options.ok()) return UsageError(options.error());
    return std::move(options).value();
  }
  if (generate_app->parsed()) {
    SetLogLevel(LogLevelOf(generate_engine.log_level));
    auto options = ToEngineOptions(generate_engine);
    if (!options.ok()) return UsageError(options.error());
    generate.engine = std::move(options).value();
    return generate;
  }
  if (offline_app->parsed()) {
    SetLogLevel(LogLevelOf(offline_engine.log_level));
    auto options = MakeBenchOptions(offline_engine, offline);
    if (!options.ok()) return UsageError(options.error());
    options->command = CommandText(argc, argv);
    return std::move(options).value();
  }
  if (online_app->parsed()) {
    SetLogLevel(LogLevelOf(online_engine.log_level));
    auto options = MakeBenchOnlineOptions(online_engine, online);
    if (!options.ok()) return UsageError(options.error());
    options->command = CommandText(argc, argv);
    return std::move(options).value();
  }
  if (compare_app->parsed()) {
    SetLogLevel(LogLevelOf(compare_engine.log_level));
    auto options = MakeBenchCompareOptions(compare_engine, compare);
    if (!options.ok()) return UsageError(options.error());
    options->run.command = CommandText(argc, argv);
    return std::move(options).value();
  }
  if (profile_app->parsed()) {
    SetLogLevel(LogLevelOf(profile_engine.log_level));
    auto options = ToEngineOptions(profile_engine);
    if (!options.ok()) return UsageError(options.error());
    profile.engine = std::move(options).value();
    return profile;
  }
  auto dtype = ParseDTypeFlag(doctor_dtype);
  if (!dtype.ok()) return UsageError(dtype.error());
  doctor.dtype = *dtype;
  return doctor;
}

}  // namespace tandem
