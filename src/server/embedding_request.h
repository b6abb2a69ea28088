// A validated request of /v1/embeddings.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/generation_request.h"

namespace tandem {

struct EmbeddingRequest {
  std::vector<std::vector<int32_t>> inputs;  // tokens of each, none empty, all within the context
  int64_t dimensions = 0;                    // the first so many values
  bool base64 = false;                       // of little-endian fp32, instead of a list of numbers
  bool normalize = true;                     // to length 1, after the cut to dimensions
  std::vector<std::string> ignored_fields;
  HttpResponse (*error_response)(const ApiError& error) = &ErrorResponse;

  int64_t num_tokens() const;
};

// The error, or nothing and fills *request. Any thread.
std::optional<ApiError> ParseEmbeddingRequest(const nlohmann::ordered_json& body, const ModelContext& model,
                                              EmbeddingRequest* request);

// What the request wants of an embedding: its first dimensions, normalized or not.
void Shorten(const EmbeddingRequest& request, std::vector<float>* embedding);
// The body of the answer; one embedding for each input.
std::string EmbeddingBody(const EmbeddingRequest& request, const std::string& model,
                          const std::vector<std::vector<float>>& embeddings);

}  // namespace tandem
