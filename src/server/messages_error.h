// Errors as Anthropic's Messages API words them.
#pragma once

#include <string>
#include <string_view>

#include "server/api_error.h"

namespace tandem {

// 400 that names the field by its path: "messages.2.content.0: ...".
ApiError MessagesFieldError(std::string path, std::string_view what);

// {"type": "error", "error": {"type", "message"}, "request_id": null}; the header X-Request-Id has the id.
std::string MessagesErrorBody(const ApiError& error);
// With Retry-After (503) and WWW-Authenticate (401).
HttpResponse MessagesErrorResponse(const ApiError& error);

}  // namespace tandem
