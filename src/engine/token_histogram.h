// Token counts in the buckets that vLLM has for those of an iteration.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem {

class TokenHistogram {
 public:
  // Inclusive; what is above the last has a bucket of its own.
  static constexpr std::array<uint64_t, 13> kUpperBounds = {1,   8,    16,   32,   64,   128,  256,
                                                            512, 1024, 2048, 4096, 8192, 16384};

  void Add(uint64_t num_tokens) {
    const auto bound = std::lower_bound(kUpperBounds.begin(), kUpperBounds.end(), num_tokens);
    ++counts_[static_cast<size_t>(bound - kUpperBounds.begin())];
    ++count_;
    sum_ += num_tokens;
  }
  // By bucket, not cumulative.
  const std::array<uint64_t, kUpperBounds.size() + 1>& counts() const { return counts_; }
  uint64_t count() const { return count_; }
  uint64_t sum() const { return sum_; }

 private:
  std::array<uint64_t, kUpperBounds.size() + 1> counts_ = {};
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace tandem
