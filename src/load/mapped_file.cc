#include "load/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tandem {

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return MakeError(ErrorCode::kNotFound, "{}: no such file", path);
    return MakeError(ErrorCode::kIo, "{}: cannot open: {}", path, std::strerror(error));
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return MakeError(ErrorCode::kIo, "{}: cannot stat: {}", path, std::strerror(error));
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return MakeError(ErrorCode::kIo, "{}: not a regular file", path);
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<uint64_t>(info.st_size);
  if (file.size_ > 0) {
    void* mapping = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED) {
      const int error = errno;
      close(fd);
      file.size_ = 0;
      return MakeError(ErrorCode::kIo, "{}: cannot map {} bytes: {}", path, info.st_size,
                       std::strerror(error));
    }
    file.data_ = static_cast<const uint8_t*>(mapping);
  }
  close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    Unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() {
  Unmap();
}

void MappedFile::Unmap() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace tandem
