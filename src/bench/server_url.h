// The address of an OpenAI-compatible server.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

struct ServerUrl {
  bool https = false;
  std::string host;          // a name or an address, IPv6 without brackets
  std::string port = "80";   // https: "443"
  std::string path = "/v1";  // before "/completions"

  // As it is written in a Host header.
  std::string Authority() const;
};

// "http://host", "https://host:8000", "http://[::1]:8000/v1/", "http://host/prefix/v1": where no path is
// given it is /v1. Errors: kInvalidArgument; param is "url".
Result<ServerUrl> ParseServerUrl(std::string_view text);

}  // namespace tandem
