// What a benchmark says to a server with the OpenAI API, and asks of it before.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "http_client/server_url.h"
#include "net/tls_context.h"

namespace tandem {

struct CompletionServer {
  ServerUrl url;
  std::string api_key;  // empty: none is sent
  std::string model;    // as the server names it
  // Further fields of every request, in the place of those of the same name.
  nlohmann::ordered_json extra_fields = nlohmann::ordered_json::object();
  std::string address;  // of the host's addresses the one that answers, as a number
  uint16_t port = 0;
  std::shared_ptr<const TlsContext> tls;  // null: plain HTTP
  // What the server says of its model, if it does.
  std::optional<int64_t> max_model_len;
  std::optional<int64_t> vocab_size;
};

// Connects and asks which models there are. model: the one that is meant; empty: the server's first. ca_file:
// MakeClientTlsContext's. Blocks, for seconds at most. Errors: kUnavailable, kInvalidArgument (a key that no
// header can carry), those of MakeClientTlsContext; param is "url", "api-key" or "ssl-ca-certs".
Result<CompletionServer> FindCompletionServer(const ServerUrl& url, const std::string& api_key,
                                              const std::string& model, const std::string& ca_file);

// The whole text of a request for a streamed completion of exactly max_tokens tokens, greedily. Servers that
// can say with every event how many tokens there are so far are asked to, and for the ids of output tokens if
// return_token_ids. extra_fields may ask otherwise.
std::string MakeCompletionRequest(const CompletionServer& server, const std::vector<int32_t>& prompt_tokens,
                                  int64_t max_tokens, bool return_token_ids);

}  // namespace tandem
