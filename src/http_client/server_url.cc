#include "http_client/server_url.h"

#include <fmt/format.h>

#include <charconv>

#include "base/param_error.h"

namespace tandem {
namespace {

Error UrlError(std::string_view param, std::string_view text, std::string_view why) {
  return MakeParamError(ErrorCode::kInvalidArgument, param, "'{}' {}; it is written http://HOST:PORT", text,
                        why);
}

}  // namespace

std::string ServerUrl::Authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<ServerUrl> ParseServerUrl(std::string_view text, std::string_view default_path,
                                 std::string_view param) {
  constexpr std::string_view kPlainScheme = "http://";
  constexpr std::string_view kTlsScheme = "https://";
  ServerUrl url;
  url.https = text.starts_with(kTlsScheme);
  if (url.https) url.port = "443";
  if (!url.https && !text.starts_with(kPlainScheme)) {
    return UrlError(param, text, "does not begin with http:// or https://");
  }
  std::string_view rest = text.substr(url.https ? kTlsScheme.size() : kPlainScheme.size());
  if (rest.find_first_of("?#@ \t\r\n") != std::string_view::npos) {
    return UrlError(param, text, "has a part that an address has not");
  }
  std::string_view authority = rest.substr(0, rest.find('/'));
  std::string_view path = rest.substr(authority.size());
  while (path.ends_with('/')) path.remove_suffix(1);
  url.path = path.empty() ? default_path : path;
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return UrlError(param, text, "has a bracket that is not closed");
    url.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
    if (!authority.empty() && authority.front() != ':')
      return UrlError(param, text, "has no port behind its address");
  } else {
    url.host = authority.substr(0, authority.find(':'));
    authority.remove_prefix(url.host.size());
  }
  if (url.host.empty()) return UrlError(param, text, "names no host");
  if (authority.empty()) return url;
  url.port = authority.substr(1);
  int port = 0;
  const auto [end, error] = std::from_chars(url.port.data(), url.port.data() + url.port.size(), port);
  if (error != std::errc() || end != url.port.data() + url.port.size() || port < 1 || port > 65535) {
    return UrlError(param, text, "has no port from 1 to 65535");
  }
  return url;
}

}  // namespace tandem
