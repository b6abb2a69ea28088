#include "server/messages_error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/json_text.h"

namespace tandem {
namespace {

std::string_view MessagesErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

ApiError MessagesFieldError(std::string path, std::string_view what) {
  std::string message = fmt::format("{}: {}", path, what);
  return InvalidRequest(std::move(path), std::move(message));
}

std::string MessagesErrorBody(const ApiError& error) {
  return DumpJson({{"type", "error"},
                   {"error", {{"type", MessagesErrorType(error.status)}, {"message", error.message}}},
                   {"request_id", nullptr}});
}

HttpResponse MessagesErrorResponse(const ApiError& error) {
  HttpResponse response = ErrorResponse(error);
  response.body = MessagesErrorBody(error);
  return response;
}

}  // namespace tandem
