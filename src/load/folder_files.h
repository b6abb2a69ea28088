// The small files of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace tandem {

// Of config.json and generation_config.json.
inline constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

inline bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

inline std::string JoinPath(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace tandem
