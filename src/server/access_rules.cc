#include "server/access_rules.h"

#include <algorithm>

#include "base/param_error.h"

namespace tandem {
namespace {

ApiError Forbidden(std::string message, std::string code) {
  return {.status = 403, .message = std::move(message), .param = {}, .code = std::move(code)};
}

ApiError MalformedHost(std::string_view what) {
  return {.status = 400,
          .message = fmt::format("malformed HTTP request: {} is no host", what),
          .param = {},
          .code = "bad_request"};
}

// Of an absolute-form target ("http://host/path"); nothing for the other forms.
std::optional<std::string_view> AuthorityOfTarget(std::string_view target) {
  constexpr std::string_view kSeparator = "://";
  const size_t scheme_end = target.find(kSeparator);
  if (target.starts_with('/') || scheme_end == std::string_view::npos) return std::nullopt;
  target.remove_prefix(scheme_end + kSeparator.size());
  return target.substr(0, target.find_first_of("/?#"));
}

bool IsHeaderList(std::string_view text) {
  constexpr size_t kMaxLength = 1024;
  return !text.empty() && text.size() <= kMaxLength && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

Result<AccessRules> AccessRules::Make(const AccessOptions& options) {
  for (const ApiKey& key : options.keys) {
    if (const Status status = CheckApiKey(key.key); !status.ok()) {
      return MakeParamError(ErrorCode::kInvalidArgument, "api-key", "{}", status.error().message);
    }
  }
  if (const Status status = CheckNoDuplicates(options.keys); !status.ok()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "api-key", "{}", status.error().message);
  }
  AccessRules rules(options.keys);
  rules.open_metrics_ = options.open_metrics;
  rules.share_prefix_cache_ = options.share_prefix_cache;
  rules.check_hosts_ = !options.allowed_hosts.empty();
  for (const std::string& text : options.allowed_hosts) {
    if (text == "*") {
      rules.all_hosts_ = true;
      continue;
    }
    const bool is_domain = text.starts_with("*.");
    const auto host = ParseAuthority(is_domain ? std::string_view(text).substr(2) : std::string_view(text));
    if (!host || host->port || host->host.find('*') != std::string::npos) {
      return MakeParamError(ErrorCode::kInvalidArgument, "allowed-hosts",
                            "'{}' is neither a host name nor *.NAME nor *", text);
    }
    (is_domain ? rules.allowed_domains_ : rules.allowed_hosts_)
        .push_back(is_domain ? "." + host->host : host->host);
  }
  for (const std::string& text : options.allowed_origins) {
    if (text == "*" || text == "null") {
      (text == "*" ? rules.all_origins_ : rules.null_origin_) = true;
      continue;
    }
    auto origin = ParseWebOrigin(text.ends_with('/') ? text.substr(0, text.size() - 1) : text);
    if (!origin) {
      return MakeParamError(ErrorCode::kInvalidArgument, "allowed-origins",
                            "'{}' is no origin (https://host or http://host:port), null or *", text);
    }
    rules.allowed_origins_.push_back(std::move(*origin));
  }
  return rules;
}

bool AccessRules::IsAllowedHost(const Authority& host) const {
  // Addresses need no name server: no page can have one point to another machine while it stays open.
  if (all_hosts_ || host.is_ip_literal || IsLoopback(host)) return true;
  return std::find(allowed_hosts_.begin(), allowed_hosts_.end(), host.host) != allowed_hosts_.end() ||
         std::any_of(allowed_domains_.begin(), allowed_domains_.end(), [&](const std::string& domain) {
           return host.host.size() > domain.size() && host.host.ends_with(domain);
         });
}

std::optional<ApiError> AccessRules::JudgeHost(const HttpRequest& head, bool loopback_only) const {
  const bool checked = check_hosts_ || (!has_keys() && loopback_only);
  const auto judge = [&](std::string_view text, std::string_view what) -> std::optional<ApiError> {
    const auto host = ParseAuthority(text);
    if (!host) return MalformedHost(what);
    if (!checked || IsAllowedHost(*host)) return std::nullopt;
    return Forbidden(
        fmt::format("The server is not reached as {}: --allowed-hosts would have to name it.", host->host),
        "host_not_allowed");
  };
  if (const auto authority = AuthorityOfTarget(head.target)) {
    if (auto error = judge(*authority, "that of the target")) return error;
  }
  // HTTP/1.0 has none; no browser speaks that.
  if (!head.HasHeader("Host")) return std::nullopt;
  return judge(head.Header("Host"), "the Host header");
}

bool AccessRules::IsAllowedOrigin(std::string_view text, const HttpRequest& head) const {
  if (all_origins_) return true;
  if (text == "null") return null_origin_;
  const auto origin = ParseWebOrigin(text);
  if (!origin) return false;
  const bool is_web = origin->scheme == "http" || origin->scheme == "https";
  if (is_web && IsLoopback(origin->authority)) return true;
  const auto host = ParseAuthority(head.Header("Host"));
  if (host && IsOriginOfHost(*origin, *host)) return true;
  return std::any_of(allowed_origins_.begin(), allowed_origins_.end(),
                     [&](const WebOrigin& allowed) { return SameOrigin(allowed, *origin); });
}

std::optional<ApiError> AccessRules::JudgeOrigin(const HttpRequest& head, PathKind path) const {
  if (head.HasHeader("Origin")) {
    if (IsAllowedOrigin(head.Header("Origin"), head)) return std::nullopt;
    return Forbidden(
        "Web pages of this origin may not use the server: --allowed-origins would have to name it.",
        "origin_not_allowed");
  }
  // What a page of another site has the browser load (images, scripts, frames) comes without an origin. A
  // link that is followed is the user's own act.
  const bool is_followed_link = EqualsIgnoringCase(head.Header("Sec-Fetch-Mode"), "navigate") &&
                                EqualsIgnoringCase(head.Header("Sec-Fetch-Dest"), "document");
  if (path == PathKind::kWebPage || all_origins_ || is_followed_link ||
      !EqualsIgnoringCase(head.Header("Sec-Fetch-Site"), "cross-site")) {
    return std::nullopt;
  }
  return Forbidden("Web pages of other sites may not load this.", "origin_not_allowed");
}

const std::string* AccessRules::FindKey(const HttpRequest& head) const {
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view authorization = head.Header("Authorization");
  if (EqualsIgnoringCase(authorization.substr(0, kScheme.size()), kScheme)) {
    authorization.remove_prefix(kScheme.size());
    authorization.remove_prefix(std::min(authorization.find_first_not_of(' '), authorization.size()));
    if (const std::string* name = keys_.Find(authorization)) return name;
  }
  return keys_.Find(head.Header("x-api-key"));
}

AccessDecision AccessRules::Judge(const HttpRequest& head, PathKind path, bool loopback_only) const {
  AccessDecision decision;
  decision.refusal = JudgeHost(head, loopback_only);
  if (decision.refusal) return decision;
  decision.refusal = JudgeOrigin(head, path);
  if (decision.refusal) return decision;
  if (head.HasHeader("Origin")) {
    decision.headers = {
        {"Access-Control-Allow-Origin", std::string(head.Header("Origin"))},
        {"Access-Control-Expose-Headers", "X-Request-Id, X-Tandem-Ignored-Fields, Retry-After"}};
  }
  if (has_keys()) {
    if (const std::string* name = FindKey(head)) decision.key_name = *name;
    const bool is_open = path == PathKind::kProbe || path == PathKind::kWebPage ||
                         (path == PathKind::kMetrics && open_metrics_) || IsPreflight(head);
    if (!is_open && decision.key_name.empty()) {
      decision.refusal = ApiError{.status = 401,
                                  .message = "The API key is missing or wrong.",
                                  .param = {},
                                  .code = "invalid_api_key"};
      return decision;
    }
  }
  const std::string_view encoding = head.Header("Content-Encoding");
  if (!encoding.empty() && !EqualsIgnoringCase(encoding, "identity")) {
    decision.refusal = ApiError{.status = 415,
                                .message = "A body with Content-Encoding is not read: send it as it is.",
                                .param = {},
                                .code = "unsupported_content_encoding"};
  }
  return decision;
}

bool IsPreflight(const HttpRequest& head) {
  return head.method == "OPTIONS" && head.HasHeader("Origin") &&
         head.HasHeader("Access-Control-Request-Method");
}

std::vector<HttpHeader> PreflightHeaders(const HttpRequest& head, std::string_view methods) {
  const std::string_view wanted = head.Header("Access-Control-Request-Headers");
  std::vector<HttpHeader> headers = {
      {"Access-Control-Allow-Methods", std::string(methods)},
      {"Access-Control-Allow-Headers",
       IsHeaderList(wanted) ? std::string(wanted) : "Authorization, Content-Type, x-api-key, X-Request-Id"},
      {"Access-Control-Max-Age", "600"}};
  // A page of a public address asks a server of a private one.
  if (EqualsIgnoringCase(head.Header("Access-Control-Request-Private-Network"), "true")) {
    headers.push_back({"Access-Control-Allow-Private-Network", "true"});
  }
  return headers;
}

}  // namespace tandem
