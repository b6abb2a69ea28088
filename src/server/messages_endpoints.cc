// /v1/messages and /v1/messages/count_tokens.
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api_state.h"
#include "server/json_text.h"
#include "server/messages_error.h"
#include "server/messages_request.h"

namespace tandem {

void CreateMessage(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  StartGeneration(state, std::move(request), std::move(exchange), &ParseMessagesRequest);
}

// Counts on the worker thread, so that a large prompt does not hold up the streams of others.
void CountTokens(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  state.http->PostWork([&state, body = std::move(request.body), exchange = std::move(exchange)]() mutable {
    int64_t num_tokens = 0;
    std::optional<ApiError> error;
    try {
      auto json = ParseJson(body);
      error = json.ok() ? CountMessagesTokens(*json, state.model, &num_tokens) : FromError(json.error());
    } catch (const std::exception& exception) {
      error = ApiError{.status = 500, .message = exception.what(), .param = {}, .code = "internal_error"};
    }
    HttpResponse response;
    if (error) {
      response = MessagesErrorResponse(*error);
    } else {
      response.body = DumpJson({{"input_tokens", num_tokens}});
    }
    // The exchange belongs to the io thread: it moves there and is not kept here.
    state.http->Post([exchange = std::move(exchange), response = std::move(response)]() mutable {
      exchange->Respond(std::move(response));
    });
  });
}

}  // namespace tandem
