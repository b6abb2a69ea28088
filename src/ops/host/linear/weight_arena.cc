#include "ops/host/linear/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "base/round_up.h"

namespace tandem {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Pages become resident when they are written: the end of a mapping that no weight needs costs nothing.
constexpr size_t kChunkBytes = size_t{64} << 20;

// size_bytes: a multiple of huge pages. Aligned to one.
std::shared_ptr<std::byte> Map(size_t size_bytes) {
  void* base =
      mmap(nullptr, size_bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(base);
  const size_t skip =
      RoundUp(reinterpret_cast<uintptr_t>(begin), uintptr_t{kHugePage}) - reinterpret_cast<uintptr_t>(begin);
  if (skip > 0) munmap(begin, skip);
  if (skip < kHugePage) munmap(begin + skip + size_bytes, kHugePage - skip);
  begin += skip;
  madvise(begin, size_bytes, MADV_HUGEPAGE);  // only a hint: any answer will do
  return {begin, [size_bytes](std::byte* mapped) { munmap(mapped, size_bytes); }};
}

}  // namespace

std::shared_ptr<std::byte> WeightArena::Allocate(size_t size_bytes) {
  const size_t size = RoundUp(size_bytes, size_t{64});
  const std::lock_guard<std::mutex> lock(mutex_);
  if (chunk_ == nullptr || size > chunk_bytes_ - used_bytes_) {
    const size_t chunk_bytes = std::max(kChunkBytes, RoundUp(size, kHugePage));
    std::shared_ptr<std::byte> chunk = Map(chunk_bytes);
    if (chunk == nullptr) return nullptr;
    chunk_ = std::move(chunk);
    chunk_bytes_ = chunk_bytes;
    used_bytes_ = 0;
  }
  std::shared_ptr<std::byte> piece(chunk_, chunk_.get() + used_bytes_);
  used_bytes_ += size;
  return piece;
}

}  // namespace tandem
