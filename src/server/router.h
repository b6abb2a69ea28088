// Paths and methods to endpoints.
#pragma once

#include <string>
#include <string_view>

#include "server/access_rules.h"
#include "server/api_error.h"
#include "server/api_state.h"

namespace tandem {

struct Route {
  std::string_view method;
  std::string_view path;  // a trailing '/' matches everything below it, except for "/" itself
  Endpoint endpoint = nullptr;
  bool needs_model = false;
  PathKind kind = PathKind::kApi;
  HttpResponse (*error_response)(const ApiError& error) = &ErrorResponse;
};

struct RouteMatch {
  const Route* route = nullptr;
  // Methods of the path, for Allow; empty if the path is unknown.
  std::string allowed_methods;
  PathKind kind = PathKind::kApi;
  HttpResponse (*error_response)(const ApiError& error) = &ErrorResponse;  // in the form of the path's API
};

// HEAD counts as GET.
RouteMatch FindRoute(std::string_view method, std::string_view path);

}  // namespace tandem
