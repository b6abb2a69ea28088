#include "server/router.h"

#include <array>

#include "server/messages_error.h"
#include "server/web_page.h"

namespace tandem {
namespace {

constexpr std::array kRoutes = {
    Route{"POST", "/v1/chat/completions", &CreateChatCompletion, true},
    Route{"POST", "/v1/completions", &CreateCompletion, true},
    Route{"POST", "/v1/embeddings", &CreateEmbeddings, true},
    Route{"POST", "/v1/messages", &CreateMessage, true, PathKind::kApi, &MessagesErrorResponse},
    Route{"POST", "/v1/messages/count_tokens", &CountTokens, true, PathKind::kApi, &MessagesErrorResponse},
    Route{"POST", "/v1/responses", &CreateResponse, true},
    Route{"GET", "/v1/responses", &RefuseWebsocket, false},
    Route{"GET", "/v1/responses/", &RetrieveResponse, true},
    Route{"DELETE", "/v1/responses/", &DeleteResponse, true},
    Route{"POST", "/v1/responses/", &CancelResponse, true},
    Route{"GET", "/v1/models", &ListModels, true},
    Route{"GET", "/v1/models/", &RetrieveModel, true},
    Route{"POST", "/reset_prefix_cache", &ResetPrefixCache, true},
    Route{"GET", "/tiers", &StreamTiers, true},
    Route{"GET", "/tokenizer_info", &TokenizerInfo, true},
    Route{"POST", "/tokenize", &Tokenize, true},
    Route{"POST", "/detokenize", &Detokenize, true},
    Route{"GET", "/health", &Health, false, PathKind::kProbe},
    Route{"GET", "/ready", &Ready, false, PathKind::kProbe},
    Route{"GET", "/version", &Version, false},
    Route{"GET", "/metrics", &Metrics, false, PathKind::kMetrics},
};
constexpr Route kWebRoute{"GET", "/", &WebPage, false, PathKind::kWebPage};

bool Matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with('/')) return path == route.path;
  return path.size() > route.path.size() && path.starts_with(route.path);
}

}  // namespace

RouteMatch FindRoute(std::string_view method, std::string_view path) {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  RouteMatch match;
  const auto consider = [&](const Route& route) {
    if (route.method == wanted) match.route = &route;
    match.kind = route.kind;
    match.error_response = route.error_response;
    match.allowed_methods += route.method == "GET" ? "GET, HEAD, " : std::string(route.method) + ", ";
  };
  for (const Route& route : kRoutes) {
    if (Matches(route, path)) consider(route);
  }
  if (match.allowed_methods.empty() && FindWebAsset(path) != nullptr) consider(kWebRoute);
  if (!match.allowed_methods.empty()) match.allowed_methods += "OPTIONS";
  return match;
}

}  // namespace tandem
