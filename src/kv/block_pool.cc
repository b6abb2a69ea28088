#include "kv/block_pool.h"

#include "base/check.h"

namespace tandem {

BlockPool::BlockPool(int64_t num_blocks) : in_use_(static_cast<size_t>(num_blocks), false) {
  free_.reserve(static_cast<size_t>(num_blocks));
  for (int64_t block = num_blocks - 1; block >= 0; --block) free_.push_back(static_cast<int32_t>(block));
}

bool BlockPool::Allocate(int64_t count, std::vector<int32_t>* blocks) {
  if (count > num_free()) return false;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t block = free_.back();
    free_.pop_back();
    in_use_[static_cast<size_t>(block)] = true;
    blocks->push_back(block);
  }
  return true;
}

void BlockPool::Free(const std::vector<int32_t>& blocks) {
  for (const int32_t block : blocks) {
    TANDEM_CHECK(block >= 0 && block < num_blocks() && in_use_[static_cast<size_t>(block)],
                 "block {} is freed but not in use", block);
    in_use_[static_cast<size_t>(block)] = false;
    free_.push_back(block);
  }
}

}  // namespace tandem
