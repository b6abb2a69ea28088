// Who may use the server: hosts, origins of web pages and keys, judged by a request's head alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/api_error.h"
#include "server/api_keys.h"
#include "server/authority.h"
#include "server/http_message.h"

namespace tandem {

struct AccessOptions {
  std::vector<ApiKey> keys;  // none: nobody needs one
  // Names beside loopback's and addresses; *.NAME: all below it; *: every name. Not empty: Host is always
  // checked.
  std::vector<std::string> allowed_hosts;
  // scheme://host[:port], null, or *: every origin.
  std::vector<std::string> allowed_origins;
  bool open_metrics = false;        // /metrics needs no key
  bool share_prefix_cache = false;  // requests of all keys have one prefix cache
};

// What a path is to these rules.
enum class PathKind {
  kApi,  // and every path that does not exist
  kMetrics,
  kProbe,    // health: for whoever looks after the process
  kWebPage,  // the page's own files: the same for everyone
};

struct AccessDecision {
  std::optional<ApiError> refusal;
  std::string key_name;             // of the key that came with it, if any
  std::vector<HttpHeader> headers;  // CORS, for the answer
};

// Immutable. Any thread.
class AccessRules {
 public:
  // Errors: kInvalidArgument; param is the flag (api-key, allowed-hosts, allowed-origins).
  static Result<AccessRules> Make(const AccessOptions& options);

  // head: method, target and headers; its body is not looked at. loopback_only: only this machine reaches the
  // server.
  AccessDecision Judge(const HttpRequest& head, PathKind path, bool loopback_only) const;

  bool has_keys() const { return !keys_.empty(); }
  // Whether no key's requests may find what was computed for another's.
  bool keeps_caches_apart() const { return keys_.size() > 1 && !share_prefix_cache_; }

 private:
  explicit AccessRules(const std::vector<ApiKey>& keys) : keys_(keys) {}

  std::optional<ApiError> JudgeHost(const HttpRequest& head, bool loopback_only) const;
  std::optional<ApiError> JudgeOrigin(const HttpRequest& head, PathKind path) const;
  bool IsAllowedHost(const Authority& host) const;
  bool IsAllowedOrigin(std::string_view text, const HttpRequest& head) const;
  const std::string* FindKey(const HttpRequest& head) const;

  ApiKeys keys_;
  std::vector<std::string> allowed_hosts_;
  std::vector<std::string> allowed_domains_;  // ".name"
  bool all_hosts_ = false;
  bool check_hosts_ = false;  // always
  std::vector<WebOrigin> allowed_origins_;
  bool null_origin_ = false;
  bool all_origins_ = false;
  bool open_metrics_ = false;
  bool share_prefix_cache_ = false;
};

// Whether a browser asks what it may send: it never sends a key along.
bool IsPreflight(const HttpRequest& head);
// What the answer to it says beside AccessDecision::headers. methods: of the path, as Allow has them.
std::vector<HttpHeader> PreflightHeaders(const HttpRequest& head, std::string_view methods);

}  // namespace tandem
