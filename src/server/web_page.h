// The files of web/, embedded at build time.
#pragma once

#include <span>
#include <string_view>

namespace tandem {

struct WebAsset {
  std::string_view path;  // "/app.js"
  std::string_view content;
};

// All of them; generated.
std::span<const WebAsset> WebAssets();
// "/" is "/index.html". nullptr if there is no such file.
const WebAsset* FindWebAsset(std::string_view path);
std::string_view WebContentType(std::string_view path);

}  // namespace tandem
