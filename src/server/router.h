// Paths and methods to endpoints.
#pragma once

#include <string>
#include <string_view>

#include "server/api_state.h"

namespace tandem {

struct Route {
  std::string_view method;
  std::string_view path;  // a trailing '/' matches everything below it, except for "/" itself
  Endpoint endpoint = nullptr;
  bool is_api = false;  // needs the model; below /v1 also the key
};

struct RouteMatch {
  const Route* route = nullptr;
  // Methods of the path, for Allow; empty if the path is unknown.
  std::string allowed_methods;
};

// HEAD counts as GET.
RouteMatch FindRoute(std::string_view method, std::string_view path);

}  // namespace tandem
