#include "load/checkpoint.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "load/mapped_checkpoint.h"
#include "load/rope_scaling.h"

namespace tandem {

namespace {

Result<CheckpointContents> ReadContents(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    return MakeError(ErrorCode::kNotFound, "{}: no such file or folder", path);
  if (error) return MakeError(ErrorCode::kIo, "{}: {}", path, error.message());
  return std::filesystem::is_directory(status) ? ReadFolderCheckpoint(path) : ReadGgufCheckpoint(path);
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path,
                                                     const std::optional<RopeScaling>& rope_scaling) {
  TANDEM_ASSIGN_OR_RETURN(CheckpointContents contents, ReadContents(path));
  if (rope_scaling) TANDEM_RETURN_IF_ERROR(OverrideRopeScaling(*rope_scaling, &contents.config));
  return MappedCheckpoint::Create(path, std::move(contents));
}

}  // namespace tandem
