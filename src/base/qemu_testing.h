// For tests of what the kernel says of a process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace tandem {

// Under qemu-user, which takes any advice on memory and follows none, and invents /proc/self/stat.
inline bool IsUnderQemu() {
  constexpr int kNoAdvice = 12345;  // EINVAL from a kernel
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool is_taken = madvise(page, page_bytes, kNoAdvice) == 0;
  munmap(page, page_bytes);
  return is_taken;
}

}  // namespace tandem
