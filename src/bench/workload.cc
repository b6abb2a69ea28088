#include "bench/workload.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/param_error.h"
#include "bench/agent_sessions.h"
#include "bench/seeded_draws.h"
#include "traces/embedded_traces.h"
#include "traces/mooncake_trace.h"
#include "traces/trace_csv.h"

namespace tandem {
namespace {

constexpr std::string_view kSyntheticPrefix = "synthetic:";
constexpr std::string_view kTracePrefix = "trace:";
constexpr std::string_view kReasoning = "reasoning";
constexpr int64_t kMaxDrawnTokens = int64_t{1} << 30;

struct NamedTrace {
  std::string_view name;
  std::string_view file_name;
};
constexpr std::array kNamedTraces = {NamedTrace{"azure-code", "azure_code.csv"},
                                     NamedTrace{"azure-conv", "azure_conv.csv"},
                                     NamedTrace{"osc", "osc.csv"}};

template <typename... Args>
Error WorkloadError(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return MakeParamError(code, "workload", format, std::forward<Args>(args)...);
}

// Mean lengths that a name asks for; 0: none.
struct Lengths {
  int64_t in = 0;
  int64_t out = 0;
};

// "in=1000,out=100", in any order, of the workload `name`.
Result<Lengths> ParseLengths(std::string_view text, const std::string& name) {
  const auto malformed = [&](std::string_view why) {
    return WorkloadError(ErrorCode::kInvalidArgument, "'{}': {}; lengths are written in=1000,out=100", name,
                         why);
  };
  Lengths lengths;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    int64_t* target = nullptr;
    if (part.starts_with("in=")) target = &lengths.in;
    if (part.starts_with("out=")) target = &lengths.out;
    if (target == nullptr) return malformed(fmt::format("'{}' is neither in=N nor out=N", part));
    if (*target != 0) return malformed(fmt::format("'{}' comes second", part));
    const std::string_view digits = part.substr(part.find('=') + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *target);
    if (error != std::errc() || end != digits.data() + digits.size() || *target < 1 ||
        *target > kMaxDrawnTokens) {
      return malformed(fmt::format("'{}' is no number of tokens from 1 to {}", digits, kMaxDrawnTokens));
    }
  }
  return lengths;
}

Result<Lengths> ParseSynthetic(const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(const Lengths lengths,
                          ParseLengths(std::string_view(name).substr(kSyntheticPrefix.size()), name));
  if (lengths.in == 0 || lengths.out == 0) {
    return WorkloadError(ErrorCode::kInvalidArgument,
                         "'{}': there is no {}; it is written synthetic:in=1000,out=100", name,
                         lengths.in == 0 ? "in=N" : "out=N");
  }
  return lengths;
}

// Draws the lengths that are asked for, uniform within 10 % of their means.
void DrawLengths(const Lengths& lengths, uint64_t seed, std::vector<WorkloadRequest>* requests) {
  std::mt19937_64 random(seed);
  for (WorkloadRequest& request : *requests) {
    if (lengths.in > 0) request.prompt_tokens = DrawLength(random, lengths.in);
    if (lengths.out > 0) request.output_tokens = DrawLength(random, lengths.out);
  }
}

// Short questions, long answers, some of them very long.
void DrawReasoning(uint64_t seed, std::vector<WorkloadRequest>* requests) {
  constexpr int64_t kPrompt = 300;
  constexpr double kMeanOutput = 1500;
  constexpr double kSigma = 0.6;
  constexpr double kMinOutput = 64;
  constexpr double kMaxOutput = 8192;
  DrawLengths({.in = kPrompt}, seed, requests);
  std::mt19937_64 random(~seed);
  const double mu = std::log(kMeanOutput) - kSigma * kSigma / 2;
  for (WorkloadRequest& request : *requests) {
    const double tokens = std::exp(mu + kSigma * DrawNormal(random));
    request.output_tokens = std::llround(std::clamp(tokens, kMinOutput, kMaxOutput));
  }
}

// Where the colon of "osc:out=100" is; npos if the name has no lengths.
size_t FindLengths(const std::string& name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos) return colon;
  const std::string_view rest = std::string_view(name).substr(colon + 1);
  return rest.starts_with("in=") || rest.starts_with("out=") ? colon : std::string::npos;
}

// path: as the workload's name has it, which messages repeat.
Result<std::string> ReadTraceFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return WorkloadError(
        ErrorCode::kNotFound,
        "'{}' is no workload and no file that can be read; workloads are azure-code, azure-conv, "
        "osc, reasoning, synthetic:in=N,out=N, agents:sessions=N, chat:sessions=N, trace:FILE or the path of "
        "a "
        "CSV file; a trace with other lengths is written osc:out=N",
        path);
  }
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return WorkloadError(ErrorCode::kIo, "{} cannot be read", path);
  return text;
}

template <typename T>
Result<T> AsWorkloadError(Result<T> result) {
  if (result.ok()) return result;
  Error error = result.error();
  error.param = "workload";
  return error;
}

WorkloadRequest RequestOf(const TraceRequest& row) {
  return {.prompt_tokens = row.prompt_tokens, .output_tokens = row.output_tokens, .arrival_s = row.arrival_s};
}

WorkloadRequest RequestOf(const MooncakeRequest& row) {
  return {.prompt_tokens = row.prompt_tokens,
          .output_tokens = row.output_tokens,
          .arrival_s = row.arrival_s,
          .begun = false,
          .made_tokens = 0,
          .block_ids = row.block_ids};
}

template <typename Row>
std::vector<WorkloadRequest> RequestsOf(const std::vector<Row>& trace) {
  std::vector<WorkloadRequest> requests;
  requests.reserve(trace.size());
  for (const Row& row : trace) requests.push_back(RequestOf(row));
  return requests;
}

Result<std::vector<WorkloadRequest>> ReadTrace(const std::string& name) {
  for (const NamedTrace& named : kNamedTraces) {
    if (named.name != name) continue;
    for (const EmbeddedTrace& trace : EmbeddedTraces()) {
      if (trace.file_name == named.file_name)
        return RequestsOf(ParseTraceCsv(trace.content, std::string(trace.file_name)).value());
    }
    TANDEM_CHECK(false, "the trace {} is not embedded", named.file_name);
  }
  if (name.starts_with(kTracePrefix)) {
    const std::string path = name.substr(kTracePrefix.size());
    TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadTraceFile(path));
    TANDEM_ASSIGN_OR_RETURN(const auto trace, AsWorkloadError(ParseMooncakeTrace(text, path)));
    return RequestsOf(trace);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadTraceFile(name));
  TANDEM_ASSIGN_OR_RETURN(const auto trace, AsWorkloadError(ParseTraceCsv(text, name)));
  return RequestsOf(trace);
}

// What is added to ids with each round, so that none comes again.
int64_t IdsOfARound(const std::vector<WorkloadRequest>& trace) {
  int64_t last_id = -1;
  for (const WorkloadRequest& request : trace) {
    for (const int64_t id : request.block_ids) last_id = std::max(last_id, id);
  }
  return last_id + 1;
}

// The first num_requests of trace, begun again when it ends.
std::vector<WorkloadRequest> Repeat(const std::vector<WorkloadRequest>& trace, int64_t num_requests) {
  std::vector<WorkloadRequest> requests;
  requests.reserve(static_cast<size_t>(num_requests));
  const auto size = static_cast<int64_t>(trace.size());
  // A round lasts as long as the trace, plus one mean gap before it begins again.
  double round_s = 0;
  if (trace.front().arrival_s) {
    const double span_s = *trace.back().arrival_s - *trace.front().arrival_s;
    round_s = span_s + (size > 1 ? span_s / static_cast<double>(size - 1) : 0.0);
  }
  const int64_t ids_of_a_round = num_requests > size ? IdsOfARound(trace) : 0;
  for (int64_t i = 0; i < num_requests; ++i) {
    WorkloadRequest request = trace[static_cast<size_t>(i % size)];
    const int64_t round = i / size;
    if (request.arrival_s)
      *request.arrival_s += static_cast<double>(round) * round_s - *trace.front().arrival_s;
    for (int64_t& id : request.block_ids) id += round * ids_of_a_round;
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace

Result<Workload> LoadWorkload(const std::string& name, int64_t num_requests, uint64_t seed) {
  TANDEM_CHECK(num_requests >= 1, "a workload of {} requests", num_requests);
  Workload workload;
  workload.name = name;
  if (NamesSessions(name)) {
    return WorkloadError(
        ErrorCode::kInvalidArgument,
        "the turns of '{}' depend on each other: only bench online, or compare with a --rate, runs "
        "sessions",
        name);
  }
  if (name.starts_with(kSyntheticPrefix)) {
    TANDEM_ASSIGN_OR_RETURN(const Lengths lengths, ParseSynthetic(name));
    workload.requests.resize(static_cast<size_t>(num_requests));
    DrawLengths(lengths, seed, &workload.requests);
  } else {
    const size_t colon = FindLengths(name);
    Lengths lengths;
    if (colon != std::string::npos) {
      TANDEM_ASSIGN_OR_RETURN(lengths, ParseLengths(std::string_view(name).substr(colon + 1), name));
    }
    if (const std::string source = name.substr(0, colon); source == kReasoning) {
      workload.requests.resize(static_cast<size_t>(num_requests));
      DrawReasoning(seed, &workload.requests);
    } else {
      if (lengths.in > 0 && source.starts_with(kTracePrefix)) {
        return WorkloadError(
            ErrorCode::kInvalidArgument,
            "'{}': what the prompts of {} share goes by their own lengths: only out=N can differ", name,
            source);
      }
      TANDEM_ASSIGN_OR_RETURN(const std::vector<WorkloadRequest> trace, ReadTrace(source));
      workload.requests = Repeat(trace, num_requests);
    }
    DrawLengths(lengths, seed, &workload.requests);
  }
  return workload;
}

MeanLengths MeanLengthsOf(std::span<const WorkloadRequest> requests) {
  double prompts = 0;
  double computed = 0;
  double outputs = 0;
  double contexts = 0;
  double own_contexts = 0;
  for (const WorkloadRequest& request : requests) {
    const auto prompt_len = static_cast<double>(request.prompt_tokens);
    const auto output_len = static_cast<double>(request.output_tokens);
    prompts += prompt_len;
    computed += prompt_len - static_cast<double>(request.possible_hit_tokens);
    outputs += output_len;
    const double context = prompt_len + output_len / 2;
    contexts += output_len * context;
    own_contexts += output_len * (context - static_cast<double>(request.shared_tokens));
  }
  return {.prompt_per_output = prompts / outputs,
          .computed_per_output = computed / outputs,
          .context = contexts / outputs,
          .own_context = own_contexts / outputs,
          .prompt = prompts / static_cast<double>(requests.size()),
          .output = outputs / static_cast<double>(requests.size())};
}

void DropTooLong(int64_t max_model_len, Workload* workload) {
  if (workload->has_sessions()) return DropLongSessions(max_model_len, workload);
  workload->num_dropped +=
      static_cast<int64_t>(std::erase_if(workload->requests, [max_model_len](const WorkloadRequest& request) {
        return request.prompt_tokens + request.output_tokens > max_model_len;
      }));
}

Status KeepFitting(int64_t max_model_len, Workload* workload) {
  const char* what = NamesSessions(workload->name) ? "sessions" : "requests";
  DropTooLong(max_model_len, workload);
  if (workload->requests.empty()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "workload",
                          "all {} {} of {} are longer than the context of {} tokens", workload->num_dropped,
                          what, workload->name, max_model_len);
  }
  if (workload->num_dropped > 0) {
    LogWarn("{}: {} {} are longer than the context of {} tokens and are left out", workload->name,
            workload->num_dropped, what, max_model_len);
  }
  return {};
}

Status WriteWorkloadJson(const Workload& workload, uint64_t seed, const std::string& path) {
  using nlohmann::ordered_json;
  ordered_json requests = ordered_json::array();
  for (const WorkloadRequest& request : workload.requests) {
    ordered_json entry = {{"prompt_tokens", request.prompt_tokens}, {"output_tokens", request.output_tokens}};
    if (request.arrival_s) entry["arrival_s"] = *request.arrival_s;
    if (!request.block_ids.empty()) entry["hash_ids"] = request.block_ids;
    if (request.turn) {
      entry["session"] = request.turn->session;
      entry["new_tokens"] = request.turn->new_tokens;
      entry["pause_s"] = request.turn->pause_s;
    }
    requests.push_back(std::move(entry));
  }
  const ordered_json root = {{"workload", workload.name},
                             {"seed", seed},
                             {"dropped", workload.num_dropped},
                             {"requests", std::move(requests)}};
  std::ofstream file(path);
  file << root.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) return MakeParamError(ErrorCode::kIo, "dump-workload", "{} cannot be written", path);
  return {};
}

}  // namespace tandem
