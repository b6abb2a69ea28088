// The way of a request that takes long to read: to the worker thread, so that a large prompt does not hold up
// the streams of others, and back to the io thread.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "server/api_error.h"
#include "server/api_state.h"
#include "server/http_message.h"
#include "server/json_text.h"
#include "server/request_trace.h"

namespace tandem {

// What PrepareThen makes of a request that is answered at once.
struct PreparedBody {
  std::string body;
  HttpResponse (*error_response)(const ApiError& error) = &ErrorResponse;
};

inline void RespondBody(PreparedBody prepared, const std::shared_ptr<HttpExchange>& exchange) {
  HttpResponse response;
  response.body = std::move(prepared.body);
  exchange->Respond(std::move(response));
}

// prepare: on the worker thread, fills *output, which begins as `initial`; its error is answered
// by output->error_response, and then is not called. then: on the io thread. trace: hears of an error.
template <typename Output>
void PrepareThen(
    ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange, RequestTrace trace,
    Output initial,
    std::function<std::optional<ApiError>(const nlohmann::ordered_json&, const ModelContext&, Output*)>
        prepare,
    std::function<void(Output, std::shared_ptr<HttpExchange>)> then) {
  state.http->PostWork([&state, body = std::move(request.body), exchange = std::move(exchange),
                        trace = std::move(trace), output = std::make_shared<Output>(std::move(initial)),
                        prepare = std::move(prepare), then = std::move(then)]() mutable {
    std::optional<ApiError> error;
    try {
      auto json = ParseJson(body);
      error = json.ok() ? prepare(*json, state.model, output.get()) : FromError(json.error());
    } catch (const std::exception& exception) {
      error = ApiError{.status = 500, .message = exception.what(), .param = {}, .code = "internal_error"};
    }
    // The exchange belongs to the io thread: it moves there and is not kept here.
    state.http->Post([exchange = std::move(exchange), trace = std::move(trace), error = std::move(error),
                      output = std::move(output), then = std::move(then)]() mutable {
      if (error) {
        trace.Fail(*error);
        return exchange->Respond(output->error_response(*error));
      }
      then(std::move(*output), std::move(exchange));
    });
  });
}

}  // namespace tandem
