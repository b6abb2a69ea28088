// From the body of a request to what an endpoint works on.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/api_state.h"
#include "server/json_text.h"

namespace tandem {

// Parses, validates and tokenizes on the worker thread, so that a large prompt does not hold up the streams
// of others; then goes on on the io thread.
template <typename Output>
void PrepareThen(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange,
                 std::optional<ApiError> (*prepare)(const nlohmann::ordered_json&, const ModelContext&,
                                                    Output*),
                 std::function<void(Output, std::shared_ptr<HttpExchange>)> then) {
  state.http->PostWork([&state, body = std::move(request.body), exchange = std::move(exchange), prepare,
                        then = std::move(then)]() mutable {
    auto output = std::make_shared<Output>();
    std::optional<ApiError> error;
    try {
      auto json = ParseJson(body);
      error = json.ok() ? prepare(*json, state.model, output.get()) : FromError(json.error());
    } catch (const std::exception& exception) {
      error = ApiError{.status = 500, .message = exception.what(), .param = {}, .code = "internal_error"};
    }
    // The exchange belongs to the io thread: it moves there and is not kept here.
    state.http->Post(
        [exchange = std::move(exchange), error = std::move(error), output, then = std::move(then)]() mutable {
          if (error) return exchange->Respond(ErrorResponse(*error));
          then(std::move(*output), std::move(exchange));
        });
  });
}

}  // namespace tandem
