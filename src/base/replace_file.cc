#include "base/replace_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
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

Result<std::string> ReadReplacedFile(const std::string& path, uint64_t max_bytes, std::string_view what) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return MakeError(ErrorCode::kNotFound, "there is no {}", path);
  const std::uintmax_t size_bytes = std::filesystem::file_size(path, error);
  if (error) return MakeError(ErrorCode::kIo, "{} cannot be read: {}", path, error.message());
  if (size_bytes > max_bytes) {
    return MakeError(ErrorCode::kMalformedFile, "{}: {} bytes are too many for {}", path, size_bytes, what);
  }
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return MakeError(ErrorCode::kIo, "{} cannot be read", path);
  return text.str();
}

}  // namespace tandem
