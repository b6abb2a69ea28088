#include "server/web_page.h"

namespace tandem {

const WebAsset* FindWebAsset(std::string_view path) {
  const std::string_view wanted = path == "/" ? "/index.html" : path;
  for (const WebAsset& asset : WebAssets()) {
    if (asset.path == wanted) return &asset;
  }
  return nullptr;
}

std::string_view WebContentType(std::string_view path) {
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".ico")) return "image/x-icon";
  return "text/html; charset=utf-8";
}

}  // namespace tandem
