# Writes OUTPUT, a .cc that holds the files FILES (a list, relative to ROOT) as byte arrays and defines
#   std::span<const TYPE> tandem::FUNCTION()
# over them. TYPE, from HEADER, is an aggregate of two string views: the name and the content. A name is the
# file's path behind PREFIX.
# cmake -DROOT=... -DFILES="index.html;app.js" -DPREFIX=/ -DHEADER=server/web_page.h -DTYPE=WebAsset
#       -DFUNCTION=WebAssets -DOUTPUT=... -P embed_files.cmake
set(arrays "")
set(entries "")
set(index 0)
foreach(file IN LISTS FILES)
  file(READ "${ROOT}/${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)"
         "\\1\n" bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {\n${bytes}\n};\n")
  string(APPEND entries "    {\"${PREFIX}${file}\", View(kFile${index}, sizeof(kFile${index}))},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}.new" "// Generated from files of the source tree by embed_files.cmake.
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include \"${HEADER}\"

namespace tandem {
namespace {

${arrays}
std::string_view View(const unsigned char* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

std::span<const ${TYPE}> ${FUNCTION}() {
  static const std::array<${TYPE}, ${index}> files = {{
${entries}  }};
  return files;
}

}  // namespace tandem
")
file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)
