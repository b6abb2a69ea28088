#include "tracing/otlp_json.h"

#include <nlohmann/json.hpp>
#include <type_traits>

namespace tandem {
namespace {

using nlohmann::ordered_json;

// Values of OTLP's enums, which JSON has as numbers.
constexpr int kInternalKind = 1;
constexpr int kServerKind = 2;
constexpr int kErrorStatus = 2;
// Of a span's flags: those of the trace (recorded ones are sampled), and what is known of the parent's place.
constexpr uint32_t kSampledBit = 0x1;
constexpr uint32_t kPlaceIsKnown = 0x100;
constexpr uint32_t kParentIsRemote = 0x200;

// 64-bit integers are strings in the JSON of protocol buffers.
ordered_json ValueOf(const AttributeValue& value) {
  return std::visit(
      [](const auto& each) -> ordered_json {
        using T = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<T, std::string>) return {{"stringValue", each}};
        if constexpr (std::is_same_v<T, int64_t>) return {{"intValue", std::to_string(each)}};
        if constexpr (std::is_same_v<T, double>) return {{"doubleValue", each}};
        if constexpr (std::is_same_v<T, bool>) return {{"boolValue", each}};
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          ordered_json values = ordered_json::array();
          for (const std::string& text : each) values.push_back({{"stringValue", text}});
          return {{"arrayValue", {{"values", std::move(values)}}}};
        }
      },
      value);
}

ordered_json AttributesOf(const Attributes& attributes) {
  ordered_json list = ordered_json::array();
  for (const auto& [key, value] : attributes) list.push_back({{"key", key}, {"value", ValueOf(value)}});
  return list;
}

ordered_json EventsOf(const std::vector<SpanEvent>& events) {
  ordered_json list = ordered_json::array();
  for (const SpanEvent& event : events) {
    list.push_back({{"timeUnixNano", std::to_string(event.time_ns)},
                    {"name", event.name},
                    {"attributes", AttributesOf(event.attributes)}});
  }
  return list;
}

ordered_json SpanJson(const Span& span) {
  ordered_json json = {{"traceId", HexOf(span.trace_id)}, {"spanId", HexOf(span.span_id)}};
  if (!span.trace_state.empty()) json["traceState"] = span.trace_state;
  if (span.parent_id != SpanId{}) json["parentSpanId"] = HexOf(span.parent_id);
  json["flags"] = kSampledBit | kPlaceIsKnown | (span.parent_is_remote ? kParentIsRemote : 0);
  json["name"] = span.name;
  json["kind"] = span.kind == Span::Kind::kServer ? kServerKind : kInternalKind;
  json["startTimeUnixNano"] = std::to_string(span.start_ns);
  json["endTimeUnixNano"] = std::to_string(span.end_ns);
  json["attributes"] = AttributesOf(span.attributes);
  if (!span.events.empty()) json["events"] = EventsOf(span.events);
  json["status"] = ordered_json::object();
  if (span.failed) json["status"] = {{"message", span.error}, {"code", kErrorStatus}};
  return json;
}

}  // namespace

std::string OtlpTraceRequest(const Attributes& resource, std::string_view version,
                             const std::vector<Span>& spans) {
  ordered_json list = ordered_json::array();
  for (const Span& span : spans) list.push_back(SpanJson(span));
  ordered_json scope = {{"scope", {{"name", "tandem"}, {"version", version}}}, {"spans", std::move(list)}};
  ordered_json of_resource = {{"resource", {{"attributes", AttributesOf(resource)}}},
                              {"scopeSpans", ordered_json::array({std::move(scope)})}};
  const ordered_json request = {{"resourceSpans", ordered_json::array({std::move(of_resource)})}};
  return request.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

int64_t OtlpRejectedSpans(std::string_view response, std::string* message) {
  const ordered_json json = ordered_json::parse(response, nullptr, false);
  if (!json.is_object()) return 0;
  const auto partial = json.find("partialSuccess");
  if (partial == json.end() || !partial->is_object()) return 0;
  if (const auto text = partial->find("errorMessage"); text != partial->end() && text->is_string()) {
    *message = text->get<std::string>();
  }
  const auto rejected = partial->find("rejectedSpans");
  if (rejected == partial->end()) return 0;
  if (rejected->is_number_integer()) return rejected->get<int64_t>();
  if (!rejected->is_string()) return 0;
  return std::strtoll(rejected->get_ref<const std::string&>().c_str(), nullptr, 10);
}

}  // namespace tandem
