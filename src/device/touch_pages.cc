#include "device/touch_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace tandem {
namespace {

// Clearing pages keeps a core busy at some GB/s; beyond this the memory is.
constexpr size_t kMaxThreads = 16;
// Of a thread at least, and its multiple: a huge page is for one thread.
constexpr size_t kShareBytes = size_t{64} << 20;

#ifndef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = 23;  // Linux 5.14
#else
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#endif

void TouchShare(std::byte* begin, size_t size_bytes, size_t page_bytes) {
  if (madvise(begin, size_bytes, kPopulateWrite) == 0) return;
  // An older system: a write of what is there to each page.
  for (size_t offset = 0; offset < size_bytes; offset += page_bytes) {
    auto* byte = reinterpret_cast<volatile unsigned char*>(begin + offset);
    *byte = *byte;
  }
}

}  // namespace

void TouchPages(void* data, size_t size_bytes) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // Whole pages only; what is cut off at the ends is touched at its first use.
  const auto address = reinterpret_cast<uintptr_t>(data);
  const size_t skipped = (page_bytes - address % page_bytes) % page_bytes;
  if (size_bytes < skipped + page_bytes) return;
  std::byte* begin = static_cast<std::byte*>(data) + skipped;
  const size_t whole_bytes = (size_bytes - skipped) / page_bytes * page_bytes;
  const size_t num_threads = std::clamp<size_t>(
      std::min<size_t>(whole_bytes / kShareBytes, std::thread::hardware_concurrency()), 1, kMaxThreads);
  const size_t share = (whole_bytes / num_threads + kShareBytes - 1) / kShareBytes * kShareBytes;
  std::vector<std::thread> threads;
  for (size_t offset = share; offset < whole_bytes; offset += share)
    threads.emplace_back(TouchShare, begin + offset, std::min(share, whole_bytes - offset), page_bytes);
  TouchShare(begin, std::min(share, whole_bytes), page_bytes);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem
