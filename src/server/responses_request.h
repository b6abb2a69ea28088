// /v1/responses: a body as a request of a chat.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "server/api_error.h"
#include "server/generation_request.h"
#include "server/response_store.h"

namespace tandem {

// Who asks, and what may be gone on from.
struct ResponsesCaller {
  ResponseStore* store = nullptr;  // outlives every request
  std::string key_name;
};

// Returns the error, or nothing and fills *request. What the answer is like is in both cases in
// request->make_writer and error_response. Any thread.
std::optional<ApiError> ParseResponsesRequest(const nlohmann::ordered_json& body, const ModelContext& model,
                                              const ResponsesCaller& caller, GenerationRequest* request);

// 404: there is no such response, or it is another key's.
ApiError ResponseNotFound(std::string_view id, std::string param);

}  // namespace tandem
