// The address of an HTTP server and of a path there.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

struct ServerUrl {
  bool https = false;
  std::string host;         // a name or an address, IPv6 without brackets
  std::string port = "80";  // https: "443"
  std::string path;

  // As it is written in a Host header.
  std::string Authority() const;
};

// "http://host", "https://host:8000", "http://[::1]:8000/v1/", "http://host/prefix/v1": slashes at the end
// are left out, and where there is no path it is default_path. Errors: kInvalidArgument with param.
Result<ServerUrl> ParseServerUrl(std::string_view text, std::string_view default_path = "/v1",
                                 std::string_view param = "url");

}  // namespace tandem
