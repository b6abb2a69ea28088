#include "cli/command_line.h"

#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/param_error.h"
#include "cli/access_flags.h"
#include "cli/bench_flags.h"
#include "cli/build_info.h"
#include "cli/engine_flags.h"
#include "cli/env_flag.h"
#include "cli/plan_flags.h"
#include "cli/secret_arguments.h"
#include "cli/size_flag.h"
#include "cli/tracing_flags.h"

namespace tandem {
namespace {

constexpr int kUsageError = 2;

struct ServerFlags {
  std::string host = "127.0.0.1";
  int port = 8000;
  AccessFlags access;
  TracingFlags tracing;
  TlsFiles tls;
  std::string max_body_size = "32MiB";
  bool special_tokens_in_content = false;
  std::string unknown_fields = "ignore";
  int64_t default_max_tokens = 0;
  std::string tool_call_parser = "auto";
  std::string responses_store_bytes = "64MiB";
  ResponseStoreOptions responses;
};

void AddServerFlags(CLI::App* app, ServerFlags* flags) {
  app->add_option("--host", flags->host, "Address to listen on")
      ->envname("TANDEM_HOST")
      ->capture_default_str();
  app->add_option("--port", flags->port, "Port to listen on; 0: any free one")
      ->envname("TANDEM_PORT")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  AddAccessFlags(app, &flags->access);
  AddTracingFlags(app, &flags->tracing);
  AddFlag(app, "ssl-certfile", &flags->tls.certificate,
          "Speak HTTPS: PEM file of the certificate, its chain behind it");
  AddFlag(app, "ssl-keyfile", &flags->tls.key,
          "PEM file of the certificate's private key (default: the same file)");
  app->add_option("--max-body-size", flags->max_body_size, "Largest request body, as SIZE in bytes")
      ->envname("TANDEM_MAX_BODY_SIZE")
      ->capture_default_str();
  app->add_flag("--special-tokens-in-content", flags->special_tokens_in_content,
                "Special tokens that messages spell out become such tokens (clients can forge turns)")
      ->envname("TANDEM_SPECIAL_TOKENS_IN_CONTENT");
  AddFlag(app, "tool-call-parser", &flags->tool_call_parser,
          "how the model writes calls of tools: auto (by its chat template), hermes, llama3_json, pythonic, "
          "mistral, mistral_args, generic, none");
  AddFlag(app, "default-max-tokens", &flags->default_max_tokens,
          "Tokens at most of chats that name no limit; 0: what is left of the context")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  AddFlag(app, "responses-store-bytes", &flags->responses_store_bytes,
          "Bytes of responses that are kept for previous_response_id, as SIZE; 0: none are")
      ->capture_default_str();
  AddFlag(app, "responses-store-count", &flags->responses.max_count,
          "Responses that are kept at most; 0: none are")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  AddFlag(
      app, "replica-id", &flags->responses.replica_id,
      "Letters and digits in the ids of this server's responses, which a proxy may go by (default: random)")
      ->check([](const std::string& id) {
        const bool well_formed = id.size() <= 32 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
                                   return std::isalnum(c) != 0;
                                 });
        return well_formed ? std::string() : "must be at most 32 letters and digits";
      });
  AddFlag(app, "unknown-fields", &flags->unknown_fields,
          "What becomes of requests with fields that nobody knows: ignore (answers name them) or reject")
      ->check(CLI::IsMember({"ignore", "reject"}))
      ->capture_default_str();
}

Result<ServeOptions> MakeServeOptions(const EngineFlags& engine_flags, const ServerFlags& flags) {
  ServeOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.engine, ToEngineOptions(engine_flags));
  TANDEM_ASSIGN_OR_RETURN(const int64_t max_body_bytes, ParseByteSize(flags.max_body_size));
  if (!flags.tls.given() && !flags.tls.key.empty()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "ssl-keyfile",
                          "a key alone makes no HTTPS: name the certificate's file with --ssl-certfile");
  }
  options.server.http.tls = flags.tls;
  options.server.http.host = flags.host;
  options.server.http.port = static_cast<uint16_t>(flags.port);
  options.server.http.max_body_bytes = static_cast<size_t>(max_body_bytes);
  TANDEM_RETURN_IF_ERROR(SetAccessOptions(flags.access, &options.server));
  options.server.special_tokens_in_content = flags.special_tokens_in_content;
  options.server.responses = flags.responses;
  TANDEM_ASSIGN_OR_RETURN(options.server.responses.max_bytes, ParseByteSize(flags.responses_store_bytes));
  options.server.default_max_tokens = flags.default_max_tokens;
  if (flags.tool_call_parser != "auto") {
    TANDEM_ASSIGN_OR_RETURN(options.server.tool_format, ParseToolFormat(flags.tool_call_parser));
  }
  options.server.reject_unknown_fields = flags.unknown_fields == "reject";
  options.server.served_model_name = options.engine.served_model_name;
  options.server.model_aliases = options.engine.model_aliases;
  options.server.version = ProjectVersion();
  TANDEM_RETURN_IF_ERROR(SetTracingOptions(flags.tracing, &options.server));
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
  for (const std::string& word : WithoutSecrets(argc, argv)) {
    if (!text.empty()) text += ' ';
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
  // Environment variables without a flag of their own are named as they are.
  const bool is_variable = error.param.starts_with("OTEL_");
  const std::string place = error.param.empty() ? "" : (is_variable ? "" : "--") + error.param + ": ";
  std::fprintf(stderr, "tandem: %s%s%s\n", place.c_str(), error.message.c_str(), " (see tandem --help)");
  return kUsageError;
}

LogLevel LogLevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warn") return LogLevel::kWarn;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

// A subcommand. options: what its flags, read by then, ask for.
struct Command {
  CLI::App* app;
  std::function<Result<CommandLine>()> options;
};

// Flags live as long as the command; `make` turns them into options once they are read.
template <typename Flags, typename Make>
Command MakeCommand(CLI::App* app, std::shared_ptr<Flags> flags, Make make) {
  return {app, [flags = std::move(flags), make]() -> Result<CommandLine> {
            SetLogLevel(LogLevelOf(flags->engine.log_level));
            auto options = make(flags.get());
            if (!options.ok()) return options.error();
            return CommandLine(std::move(options).value());
          }};
}

template <typename T>
struct FlagsOf {
  EngineFlags engine;
  T own;
};

Command AddServe(CLI::App* app) {
  CLI::App* command = app->add_subcommand("serve", "OpenAI-compatible server and web page");
  auto flags = std::make_shared<FlagsOf<ServerFlags>>();
  AddEngineFlags(command, &flags->engine);
  AddServerFlags(command, &flags->own);
  return MakeCommand(command, flags, [](auto* read) { return MakeServeOptions(read->engine, read->own); });
}

Command AddGenerate(CLI::App* app) {
  CLI::App* command = app->add_subcommand("generate", "Continues a text on standard output");
  auto flags = std::make_shared<FlagsOf<GenerateOptions>>();
  AddEngineFlags(command, &flags->engine);
  AddGenerateFlags(command, &flags->own);
  return MakeCommand(command, flags, [](auto* read) -> Result<GenerateOptions> {
    TANDEM_ASSIGN_OR_RETURN(read->own.engine, ToEngineOptions(read->engine));
    return read->own;
  });
}

Command AddBenchOffline(CLI::App* bench, const std::string& command_text) {
  CLI::App* command = bench->add_subcommand("offline", "All requests at once");
  auto flags = std::make_shared<FlagsOf<BenchOptions>>();
  AddEngineFlags(command, &flags->engine);
  AddBenchFlags(command, &flags->own);
  return MakeCommand(command, flags, [command_text](auto* read) -> Result<BenchOptions> {
    TANDEM_ASSIGN_OR_RETURN(BenchOptions options, MakeBenchOptions(read->engine, read->own));
    options.command = command_text;
    return options;
  });
}

Command AddBenchOnline(CLI::App* bench, const std::string& command_text) {
  CLI::App* command = bench->add_subcommand("online", "Requests that arrive one after the other");
  auto flags = std::make_shared<FlagsOf<OnlineFlags>>();
  AddEngineFlags(command, &flags->engine);
  AddOnlineFlags(command, &flags->own);
  return MakeCommand(command, flags, [command_text](auto* read) -> Result<BenchOnlineOptions> {
    TANDEM_ASSIGN_OR_RETURN(BenchOnlineOptions options, MakeBenchOnlineOptions(read->engine, read->own));
    options.command = command_text;
    return options;
  });
}

Command AddBenchCompare(CLI::App* bench, const std::string& command_text) {
  CLI::App* command =
      bench->add_subcommand("compare", "Several strategies and workloads side by side, in one engine");
  auto flags = std::make_shared<FlagsOf<CompareFlags>>();
  AddEngineFlags(command, &flags->engine);
  AddCompareFlags(command, &flags->own);
  return MakeCommand(command, flags, [command_text](auto* read) -> Result<BenchCompareOptions> {
    TANDEM_ASSIGN_OR_RETURN(BenchCompareOptions options, MakeBenchCompareOptions(read->engine, read->own));
    options.run.command = command_text;
    return options;
  });
}

Command AddProfile(CLI::App* app) {
  CLI::App* command =
      app->add_subcommand("profile", "Measures what the parts of an iteration cost, for the scheduler");
  auto flags = std::make_shared<FlagsOf<ProfileCommandOptions>>();
  AddEngineFlags(command, &flags->engine);
  command->add_option("--json", flags->own.json, "File for the result as one JSON object");
  return MakeCommand(command, flags, [](auto* read) -> Result<ProfileCommandOptions> {
    TANDEM_ASSIGN_OR_RETURN(read->own.engine, ToEngineOptions(read->engine));
    return read->own;
  });
}

Command AddPlan(CLI::App* app) {
  CLI::App* command = app->add_subcommand(
      "plan", "What a machine that you need not own would make of a model and a workload");
  auto flags = std::make_shared<PlanFlags>();
  AddPlanFlags(command, flags.get());
  return {command, [flags]() -> Result<CommandLine> {
            TANDEM_ASSIGN_OR_RETURN(PlanOptions options, MakePlanOptions(*flags));
            return CommandLine(std::move(options));
          }};
}

Command AddDoctor(CLI::App* app) {
  struct DoctorFlags {
    DoctorOptions options;
    std::string dtype = "auto";
  };
  CLI::App* command = app->add_subcommand("doctor", "Says what this machine offers and what would limit it");
  auto flags = std::make_shared<DoctorFlags>();
  command->add_option("model", flags->options.model, "Model folder or .gguf file: would it fit?")
      ->envname("TANDEM_MODEL");
  command->add_option("--dtype", flags->dtype, "Type of weights and KV cache: auto, bf16, fp32")
      ->envname("TANDEM_DTYPE");
  command->add_flag("--json", flags->options.json, "One JSON object");
  return {command, [flags]() -> Result<CommandLine> {
            TANDEM_ASSIGN_OR_RETURN(flags->options.dtype, ParseDTypeFlag(flags->dtype));
            return CommandLine(flags->options);
          }};
}

// CLI11 would only say that a subcommand is required.
Status CheckCommandName(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* of = &app;
  for (int i = 1;; ++i) {
    std::vector<std::string> names;
    const CLI::App* found = nullptr;
    for (const CLI::App* each : of->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(each->get_name());
      if (i < argc && each->get_name() == argv[i]) found = each;
    }
    const bool is_flag = i < argc && argv[i][0] == '-';
    if (names.empty() || is_flag) return {};  // a command, and what follows is its own; or --help
    if (found == nullptr) {
      const std::string before = of == &app ? "" : of->get_name() + " ";
      const std::string what =
          i < argc ? fmt::format("there is no command '{}{}'", before, argv[i]) : before + "needs a command";
      return MakeError(ErrorCode::kInvalidArgument, "{}; there are: {}", what, fmt::join(names, ", "));
    }
    of = found;
  }
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
  app.set_version_flag("--version", VersionText);
  app.require_subcommand(1);
  std::vector<Command> commands;
  commands.push_back(AddServe(&app));
  commands.push_back(AddGenerate(&app));
  CLI::App* bench = app.add_subcommand("bench", "Measures throughput and latencies");
  bench->require_subcommand(1);
  const std::string command_text = CommandText(argc, argv);
  commands.push_back(AddBenchOffline(bench, command_text));
  commands.push_back(AddBenchOnline(bench, command_text));
  commands.push_back(AddBenchCompare(bench, command_text));
  commands.push_back(AddProfile(&app));
  commands.push_back(AddPlan(&app));
  commands.push_back(AddDoctor(&app));

  if (const Status known = CheckCommandName(app, argc, argv); !known.ok()) return UsageError(known.error());
  if (const Status given = CheckSecretFlags(argc, argv); !given.ok()) return UsageError(given.error());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version
    return UsageError({.message = error.what()});
  }
  const auto asked =
      std::find_if(commands.begin(), commands.end(), [](const Command& each) { return each.app->parsed(); });
  auto options = asked->options();
  if (!options.ok()) return UsageError(options.error());
  return std::move(options).value();
}

}  // namespace tandem
