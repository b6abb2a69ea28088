// A whole file, mapped read-only. Movable handle; the mapping lives as long as the object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace tandem {

class MappedFile {
 public:
  // Errors: kNotFound, kIo (no regular file, no permission, mmap failed). An empty file maps to size() == 0.
  // The file must not shrink while it is mapped: a read past its new end kills the process.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }  // bytes
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  void Unmap();

  std::string path_;
  const uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace tandem
