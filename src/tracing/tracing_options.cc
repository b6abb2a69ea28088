#include "tracing/tracing_options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/log.h"
#include "base/param_error.h"

namespace tandem {
namespace {

constexpr const char* kTracesPath = "/v1/traces";

using Pairs = std::vector<std::pair<std::string, std::string>>;

// A variable that is set to nothing counts as not set, as the specification says.
class Variables {
 public:
  explicit Variables(const ReadVariable& read) : read_(read) {}

  std::string Get(const std::string& name) const {
    const char* value = read_(name.c_str());
    return value == nullptr ? std::string() : std::string(value);
  }

  // OTEL_EXPORTER_OTLP_TRACES_..., else OTEL_EXPORTER_OTLP_...; name: which of both it was.
  std::string GetOtlp(std::string_view what, std::string* name) const {
    *name = fmt::format("OTEL_EXPORTER_OTLP_TRACES_{}", what);
    std::string value = Get(*name);
    if (!value.empty()) return value;
    *name = fmt::format("OTEL_EXPORTER_OTLP_{}", what);
    return Get(*name);
  }

 private:
  const ReadVariable& read_;
};

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string DecodePercent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 2, byte, 16).ptr == &text[i + 1] + 2) {
      decoded.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

// "a=1,b=2": values may be percent-encoded.
Result<Pairs> ParsePairs(const std::string& variable, std::string_view text) {
  Pairs pairs;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = TrimBlanks(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view name = TrimBlanks(pair.substr(0, std::min(equals, pair.size())));
    if (equals == std::string_view::npos || name.empty()) {
      // The value may be a secret.
      return MakeParamError(ErrorCode::kInvalidArgument, variable,
                            "member {} of its list is not written NAME=VALUE", pairs.size() + 1);
    }
    pairs.emplace_back(DecodePercent(name), DecodePercent(TrimBlanks(pair.substr(equals + 1))));
  }
  return pairs;
}

bool IsHeaderName(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c > ' ' && c <= '~' && std::string_view("\"(),/:;<=>?@[\\]{}").find(c) == std::string_view::npos;
  });
}

bool IsHeaderValue(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Result<Pairs> ReadHeaders(const Variables& variables) {
  std::string name;
  const std::string text = variables.GetOtlp("HEADERS", &name);
  TANDEM_ASSIGN_OR_RETURN(Pairs headers, ParsePairs(name, text));
  for (const auto& [header, value] : headers) {
    if (!IsHeaderName(header) || !IsHeaderValue(value)) {
      return MakeParamError(ErrorCode::kInvalidArgument, name,
                            "its header {} has a character that no header can carry", header);
    }
  }
  return headers;
}

// Sets *value where the variable is set.
template <typename T>
Status ReadNumber(const std::string& name, const std::string& text, int64_t min, T* value) {
  if (text.empty()) return {};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < min || number > 1'000'000'000) {
    return MakeParamError(ErrorCode::kInvalidArgument, name, "'{}' is no number from {} to 1000000000", text,
                          min);
  }
  *value = T(number);
  return {};
}

Status ReadLimits(const Variables& variables, OtlpOptions* options) {
  std::string timeout_name;
  const std::string timeout = variables.GetOtlp("TIMEOUT", &timeout_name);
  TANDEM_RETURN_IF_ERROR(ReadNumber(timeout_name, timeout, 1, &options->timeout));
  const auto read = [&](const char* name, int64_t min, auto* value) {
    return ReadNumber(name, variables.Get(name), min, value);
  };
  TANDEM_RETURN_IF_ERROR(read("OTEL_BSP_SCHEDULE_DELAY", 0, &options->delay));
  TANDEM_RETURN_IF_ERROR(read("OTEL_BSP_MAX_QUEUE_SIZE", 1, &options->max_queued_spans));
  TANDEM_RETURN_IF_ERROR(read("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, &options->max_batch_spans));
  options->max_batch_spans = std::min(options->max_batch_spans, options->max_queued_spans);
  return {};
}

Result<Attributes> ReadResource(const Variables& variables, const std::string& version) {
  TANDEM_ASSIGN_OR_RETURN(const Pairs given,
                          ParsePairs("OTEL_RESOURCE_ATTRIBUTES", variables.Get("OTEL_RESOURCE_ATTRIBUTES")));
  Attributes resource = {{"service.name", "tandem"},
                         {"service.version", version},
                         {"service.instance.id", HexOf(NewTraceId())},
                         {"telemetry.sdk.name", "tandem"},
                         {"telemetry.sdk.language", "cpp"},
                         {"telemetry.sdk.version", version}};
  const auto set = [&resource](const std::string& key, const std::string& value) {
    const auto found = std::find_if(resource.begin(), resource.end(),
                                    [&key](const auto& attribute) { return attribute.first == key; });
    if (found != resource.end()) {
      found->second = value;
    } else {
      resource.emplace_back(key, value);
    }
  };
  for (const auto& [key, value] : given) set(key, value);
  if (const std::string name = variables.Get("OTEL_SERVICE_NAME"); !name.empty()) set("service.name", name);
  return resource;
}

// Nothing: no endpoint is named. What a variable for traces names is the whole address, what the one for all
// signals names has the path of traces behind it.
Result<std::optional<ServerUrl>> FindEndpoint(const std::string& flag, const Variables& variables) {
  if (!flag.empty()) {
    TANDEM_ASSIGN_OR_RETURN(ServerUrl url, ParseServerUrl(flag, kTracesPath, "otlp-traces-endpoint"));
    return std::optional(std::move(url));
  }
  std::string name;
  const std::string text = variables.GetOtlp("ENDPOINT", &name);
  if (text.empty()) return std::optional<ServerUrl>();
  const bool for_all_signals = name == "OTEL_EXPORTER_OTLP_ENDPOINT";
  TANDEM_ASSIGN_OR_RETURN(ServerUrl url, ParseServerUrl(text, for_all_signals ? "" : "/", name));
  if (for_all_signals) url.path += kTracesPath;
  return std::optional(std::move(url));
}

}  // namespace

Result<std::optional<TracingOptions>> ReadTracingOptions(const std::string& endpoint,
                                                         const std::string& version,
                                                         const ReadVariable& variable) {
  const Variables variables(variable);
  if (variables.Get("OTEL_SDK_DISABLED") == "true" || variables.Get("OTEL_TRACES_EXPORTER") == "none") {
    if (!endpoint.empty())
      LogWarn("no traces are sent to {}: the environment's OTEL_ variables say so", endpoint);
    return std::optional<TracingOptions>();
  }
  TANDEM_ASSIGN_OR_RETURN(std::optional<ServerUrl> url, FindEndpoint(endpoint, variables));
  if (!url) return std::optional<TracingOptions>();
  std::string protocol_name;
  const std::string protocol = variables.GetOtlp("PROTOCOL", &protocol_name);
  // A receiver of http/protobuf takes JSON at the same address; OTLP has it so.
  if (!protocol.empty() && protocol != "http/json" && protocol != "http/protobuf") {
    return MakeParamError(ErrorCode::kUnsupported, protocol_name,
                          "traces are sent by http/json, not by {}; receivers listen for it at port 4318",
                          protocol);
  }
  TracingOptions options;
  options.otlp.url = std::move(*url);
  options.otlp.version = version;
  TANDEM_ASSIGN_OR_RETURN(options.otlp.headers, ReadHeaders(variables));
  TANDEM_ASSIGN_OR_RETURN(options.otlp.resource, ReadResource(variables, version));
  TANDEM_RETURN_IF_ERROR(ReadLimits(variables, &options.otlp));
  std::string ignored_name;
  options.otlp.ca_file = variables.GetOtlp("CERTIFICATE", &ignored_name);
  const std::string sampler = variables.Get("OTEL_TRACES_SAMPLER");
  TANDEM_ASSIGN_OR_RETURN(options.sampler, Sampler::Make(sampler.empty() ? "parentbased_always_on" : sampler,
                                                         variables.Get("OTEL_TRACES_SAMPLER_ARG")));
  return std::optional(std::move(options));
}

}  // namespace tandem
