#include "server/authority.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "server/http_message.h"

namespace tandem {
namespace {

constexpr int kHttpPort = 80;
constexpr int kHttpsPort = 443;
constexpr int kMaxPort = 65535;

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// RFC 3986, 3.2.2: unreserved, percent-encoded and sub-delims.
bool IsHostNameCharacter(char c) {
  constexpr std::string_view kOthers = "-._~%!$&'()*+,;=";
  return IsAlphanumeric(c) || kOthers.find(c) != std::string_view::npos;
}

bool IsIpv4(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

std::optional<in6_addr> ParseIpv6(std::string_view host) {
  const std::string address(host.substr(0, host.find('%')));  // without a zone
  in6_addr parsed{};
  if (inet_pton(AF_INET6, address.c_str(), &parsed) != 1) return std::nullopt;
  return parsed;
}

bool ParsePort(std::string_view text, std::optional<int>* port) {
  port->reset();
  if (text.empty()) return true;
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
    if (value > kMaxPort) return false;
  }
  *port = value;
  return true;
}

}  // namespace

std::optional<Authority> ParseAuthority(std::string_view text) {
  Authority authority;
  std::string_view after_host;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos || !ParseIpv6(text.substr(1, end - 1))) return std::nullopt;
    authority.host = LowerAscii(text.substr(1, end - 1));
    authority.is_ip_literal = true;
    after_host = text.substr(end + 1);
  } else {
    const size_t end = std::min(text.find(':'), text.size());
    std::string_view host = text.substr(0, end);
    if (!std::all_of(host.begin(), host.end(), &IsHostNameCharacter)) return std::nullopt;
    if (host.ends_with('.')) host.remove_suffix(1);
    if (host.empty()) return std::nullopt;
    authority.host = LowerAscii(host);
    authority.is_ip_literal = IsIpv4(authority.host);
    after_host = text.substr(end);
  }
  if (after_host.empty()) return authority;
  if (!after_host.starts_with(':') || !ParsePort(after_host.substr(1), &authority.port)) return std::nullopt;
  return authority;
}

bool IsLoopback(const Authority& authority) {
  const std::string& host = authority.host;
  if (!authority.is_ip_literal) return host == "localhost" || host.ends_with(".localhost");
  if (IsIpv4(host)) return host.starts_with("127.");
  const auto address = ParseIpv6(host);
  if (!address) return false;
  constexpr uint8_t kLoopbackNet = 127;  // of an IPv4 address in the last four bytes
  return IN6_IS_ADDR_LOOPBACK(&*address) ||
         (IN6_IS_ADDR_V4MAPPED(&*address) && address->s6_addr[12] == kLoopbackNet);
}

int WebOrigin::EffectivePort() const {
  if (authority.port) return *authority.port;
  if (scheme == "https") return kHttpsPort;
  return scheme == "http" ? kHttpPort : 0;
}

std::optional<WebOrigin> ParseWebOrigin(std::string_view text) {
  constexpr std::string_view kSeparator = "://";
  const size_t end = text.find(kSeparator);
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  const std::string_view scheme = text.substr(0, end);
  const bool well_formed = std::all_of(scheme.begin(), scheme.end(), [](char c) {
    return IsAlphanumeric(c) || c == '+' || c == '-' || c == '.';
  });
  auto authority = ParseAuthority(text.substr(end + kSeparator.size()));
  if (!well_formed || !authority) return std::nullopt;
  return WebOrigin{.scheme = LowerAscii(scheme), .authority = std::move(*authority)};
}

bool SameOrigin(const WebOrigin& a, const WebOrigin& b) {
  return a.scheme == b.scheme && a.authority.host == b.authority.host &&
         a.EffectivePort() == b.EffectivePort();
}

bool IsOriginOfHost(const WebOrigin& origin, const Authority& host) {
  if (origin.scheme != "http" && origin.scheme != "https") return false;
  if (origin.authority.host != host.host) return false;
  const int port = origin.EffectivePort();
  if (host.port) return port == *host.port;
  return port == kHttpPort || port == kHttpsPort;
}

}  // namespace tandem
