#include "base/replace_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace tandem {

Status ReplaceFile(const std::string& path, std::string_view content) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const std::string partial = fmt::format("{}.{}", path, getpid());
  std::ofstream out(partial);
  out << content;
  out.close();
  if (out) std::filesystem::rename(partial, path, error);
  if (out && !error) return {};
  std::error_code ignored;
  std::filesystem::remove(partial, ignored);
  return MakeError(ErrorCode::kIo, "{} cannot be written{}{}", path, error ? ": " : "",
                   error ? error.message() : "");
}

}  // namespace tandem
