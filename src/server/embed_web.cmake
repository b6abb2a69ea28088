# Writes OUTPUT, a .cc that holds the files FILES (a list, relative to ROOT) as byte arrays.
# cmake -DROOT=... -DFILES="index.html;app.js" -DOUTPUT=... -P embed_web.cmake
set(arrays "")
set(entries "")
set(index 0)
foreach(file IN LISTS FILES)
  file(READ "${ROOT}/${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)"
         "\\1\n" bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {\n${bytes}\n};\n")
  string(APPEND entries "    {\"/${file}\", View(kFile${index}, sizeof(kFile${index}))},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}.new" "// Generated from web/ by embed_web.cmake.
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include \"server/web_page.h\"

namespace tandem {
namespace {

${arrays}
std::string_view View(const unsigned char* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

std::span<const WebAsset> WebAssets() {
  static const std::array<WebAsset, ${index}> assets = {{
${entries}  }};
  return assets;
}

}  // namespace tandem
")
file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)
