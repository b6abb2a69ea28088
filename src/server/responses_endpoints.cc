// /v1/responses and what lies below it.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api_state.h"
#include "server/json_text.h"
#include "server/responses_request.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kResponsesPath = "/v1/responses/";
constexpr std::string_view kInputItems = "/input_items";

// What is behind /v1/responses/.
std::string BelowResponses(const HttpRequest& request) {
  return PercentDecode(request.Path().substr(kResponsesPath.size()));
}

// A parameter of the query; empty if it is not there.
std::string QueryParameter(const HttpRequest& request, std::string_view name) {
  std::string_view target = request.target;
  size_t at = target.find('?');
  while (at != std::string_view::npos) {
    target.remove_prefix(at + 1);
    at = target.find('&');
    const std::string_view pair = target.substr(0, at);
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) {
      return PercentDecode(std::string(pair.substr(name.size() + 1)));
    }
  }
  return {};
}

void SendResponsesJson(const ordered_json& body, HttpExchange* exchange) {
  HttpResponse response;
  response.body = DumpJson(body);
  exchange->Respond(std::move(response));
}

// One page of the items that a response was made from.
std::optional<ApiError> ListItems(const HttpRequest& request, ordered_json items, ordered_json* list) {
  constexpr size_t kMaxItems = 100;
  size_t limit = 20;
  if (const std::string text = QueryParameter(request, "limit"); !text.empty()) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (problem != std::errc() || end != text.data() + text.size() || limit < 1 || limit > kMaxItems) {
      return InvalidRequest("limit", fmt::format("limit must be a number from 1 to {}", kMaxItems));
    }
  }
  const std::string order = QueryParameter(request, "order");
  if (!order.empty() && order != "asc" && order != "desc") {
    return InvalidRequest("order", "order must be \"asc\" or \"desc\"");
  }
  if (order != "asc") std::reverse(items.begin(), items.end());
  size_t begin = 0;
  if (const std::string after = QueryParameter(request, "after"); !after.empty()) {
    const auto found = std::find_if(items.begin(), items.end(),
                                    [&](const ordered_json& item) { return item["id"] == after; });
    if (found == items.end())
      return InvalidRequest("after", fmt::format("after: there is no item '{}'", after));
    begin = static_cast<size_t>(found - items.begin()) + 1;
  }
  ordered_json page = ordered_json::array();
  for (size_t i = begin; i < items.size() && page.size() < limit; ++i) page.push_back(std::move(items[i]));
  const bool has_more = begin + page.size() < items.size();
  const ordered_json first = page.empty() ? ordered_json() : page.front()["id"];
  const ordered_json last = page.empty() ? ordered_json() : page.back()["id"];
  *list = {{"object", "list"},
           {"data", std::move(page)},
           {"first_id", first},
           {"last_id", last},
           {"has_more", has_more}};
  return std::nullopt;
}

}  // namespace

void CreateResponse(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const ResponsesCaller caller{.store = state.responses.get(), .key_name = request.key_name};
  StartGeneration(
      state, std::move(request), std::move(exchange),
      [caller](const ordered_json& body, const ModelContext& model, GenerationRequest* generation_request) {
        return ParseResponsesRequest(body, model, caller, generation_request);
      });
}

// Every endpoint has the signature of api_state.h; these answer at once.
// NOLINTBEGIN(performance-unnecessary-value-param)
void RetrieveResponse(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  std::string id = BelowResponses(request);
  const bool wants_items = id.ends_with(kInputItems);
  if (wants_items) id.resize(id.size() - kInputItems.size());
  const auto stored = state.responses->Find(id, request.key_name);
  if (!stored) return exchange->Respond(ErrorResponse(ResponseNotFound(id, "response_id")));
  if (!wants_items) {
    if (QueryParameter(request, "stream") == "true") {
      return exchange->Respond(ErrorResponse(
          InvalidRequest("stream", "stream: only responses in the background could be streamed afterwards")));
    }
    HttpResponse response;
    response.body = stored->body;
    return exchange->Respond(std::move(response));
  }
  ordered_json list;
  if (const auto error = ListItems(request, ordered_json::parse(stored->input), &list)) {
    return exchange->Respond(ErrorResponse(*error));
  }
  SendResponsesJson(list, exchange.get());
}

void DeleteResponse(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const std::string id = BelowResponses(request);
  if (!state.responses->Remove(id, request.key_name)) {
    return exchange->Respond(ErrorResponse(ResponseNotFound(id, "response_id")));
  }
  SendResponsesJson({{"id", id}, {"object", "response"}, {"deleted", true}}, exchange.get());
}

void CancelResponse(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  constexpr std::string_view kCancel = "/cancel";
  std::string id = BelowResponses(request);
  const bool is_cancel = id.ends_with(kCancel);
  if (is_cancel) id.resize(id.size() - kCancel.size());
  if (!is_cancel || !state.responses->Find(id, request.key_name)) {
    return exchange->Respond(ErrorResponse(ResponseNotFound(id, "response_id")));
  }
  exchange->Respond(ErrorResponse(InvalidRequest(
      "response_id",
      "only a response in the background could be cancelled; others end with their connection")));
}

void RefuseWebsocket(ApiState& /*state*/, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const bool is_upgrade = request.HasHeader("Upgrade");
  HttpResponse response =
      ErrorResponse({.status = is_upgrade ? 426 : 405,
                     .message = is_upgrade ? "/v1/responses takes no websockets: use POST with stream."
                                           : "Responses are not listed: name one by its id, or use POST.",
                     .param = {},
                     .code = "method_not_allowed"});
  response.headers.push_back(is_upgrade ? HttpHeader{"Upgrade", "HTTP/1.1"}
                                        : HttpHeader{"Allow", "POST, OPTIONS"});
  exchange->Respond(std::move(response));
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace tandem
