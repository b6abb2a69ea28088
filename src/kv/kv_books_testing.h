// What tests of the books share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "kv/kv_books.h"

namespace tandem {

inline constexpr int64_t kBooksBlockSize = 4;
inline constexpr std::array<Tier, kNumTiers> kBothTiers = {Tier::kGpu, Tier::kCpu};

inline std::unique_ptr<KvBooks> MakeBooks(int64_t gpu_blocks, int64_t cpu_blocks) {
  return KvBooks::Create(kBooksBlockSize, {gpu_blocks, cpu_blocks}).value();
}

}  // namespace tandem
