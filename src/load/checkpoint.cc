#include "load/checkpoint.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "load/mapped_checkpoint.h"

namespace tandem {

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    return MakeError(ErrorCode::kNotFound, "{}: no such file or folder", path);
  if (error) return MakeError(ErrorCode::kIo, "{}: {}", path, error.message());
  if (std::filesystem::is_directory(status)) {
    TANDEM_ASSIGN_OR_RETURN(CheckpointContents contents, ReadFolderCheckpoint(path));
    return MappedCheckpoint::Create(path, std::move(contents));
  }
  TANDEM_ASSIGN_OR_RETURN(CheckpointContents contents, ReadGgufCheckpoint(path));
  return MappedCheckpoint::Create(path, std::move(contents));
}

}  // namespace tandem
