#include "server/api_error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/json_text.h"

namespace tandem {
namespace {

std::string_view ErrorType(int status) {
  if (status == 404) return "not_found_error";
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 503) return "service_unavailable_error";
  return status >= 500 ? "internal_server_error" : "invalid_request_error";
}

}  // namespace

ApiError InvalidRequest(std::string param, std::string message) {
  return {.status = 400, .message = std::move(message), .param = std::move(param), .code = "invalid_value"};
}

ApiError ModelNotFound(std::string_view model) {
  return {.status = 404,
          .message = fmt::format("The model `{}` does not exist.", model),
          .param = "model",
          .code = "model_not_found"};
}

ApiError Unavailable(std::string message, std::string code) {
  return {.status = 503, .message = std::move(message), .param = {}, .code = std::move(code)};
}

ApiError FromError(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return InvalidRequest(error.param, error.message);
    case ErrorCode::kUnsupported:
      return {.status = 400, .message = error.message, .param = error.param, .code = "unsupported"};
    case ErrorCode::kNotFound:
      return {.status = 404, .message = error.message, .param = error.param, .code = "not_found"};
    case ErrorCode::kResourceExhausted:
      return Unavailable(error.message, "queue_full");
    case ErrorCode::kUnavailable:
      return Unavailable(error.message, "unavailable");
    case ErrorCode::kMalformedFile:
    case ErrorCode::kIo:
      break;
  }
  return {.status = 500, .message = error.message, .param = error.param, .code = "internal_error"};
}

std::string ErrorBody(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json body;
  body["error"] = {{"message", error.message},
                   {"type", ErrorType(error.status)},
                   {"param", text_or_null(error.param)},
                   {"code", text_or_null(error.code)}};
  return DumpJson(body);
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  if (error.status == 503) response.headers.push_back({"Retry-After", "1"});
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  response.body = ErrorBody(error);
  return response;
}

}  // namespace tandem
