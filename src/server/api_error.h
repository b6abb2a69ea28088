// Errors as the OpenAI API words them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http_message.h"

namespace tandem {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the request field at fault; null in the body if empty
  std::string code;   // null in the body if empty
};

ApiError InvalidRequest(std::string param, std::string message);
ApiError ModelNotFound(std::string_view model);
ApiError Unavailable(std::string message, std::string code);
// kInvalidArgument and kUnsupported: 400; kNotFound: 404; kResourceExhausted and kUnavailable: 503; else 500.
ApiError FromError(const Error& error);

// {"error": {"message", "type", "param", "code"}}
std::string ErrorBody(const ApiError& error);
// With Retry-After (503) and WWW-Authenticate (401).
HttpResponse ErrorResponse(const ApiError& error);

}  // namespace tandem
