// Hosts and origins as requests name them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// host[:port], as the Host header and absolute-form targets have it.
struct Authority {
  std::string host;  // lower case, without a trailing dot and without the brackets of IPv6
  std::optional<int> port;
  bool is_ip_literal = false;

  bool operator==(const Authority&) const = default;
};

// Nothing if the text is malformed (RFC 3986, 3.2; user information is refused too).
std::optional<Authority> ParseAuthority(std::string_view text);

// localhost, a name below it, 127.0.0.0/8, ::1: what no name server can give another meaning.
bool IsLoopback(const Authority& authority);

// scheme://host[:port], as the Origin header has it.
struct WebOrigin {
  std::string scheme;  // lower case
  Authority authority;

  // That of the scheme if none is written; 0: unknown scheme.
  int EffectivePort() const;
};

// Nothing if it is something else ("null" among it).
std::optional<WebOrigin> ParseWebOrigin(std::string_view text);

// Whether they mean the same: case, a trailing dot and a scheme's own port make no difference.
bool SameOrigin(const WebOrigin& a, const WebOrigin& b);

// Whether a page of this origin came from the server that was addressed as host. Schemes are not compared,
// since a proxy may have ended TLS: a host without a port is that of either scheme's own port.
bool IsOriginOfHost(const WebOrigin& origin, const Authority& host);

}  // namespace tandem
