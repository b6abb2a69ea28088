// Reproducible pseudo-random values of weights without a checkpoint: a function of (seed, index) only, with
// the same bits on every device.
#pragma once

#include <cstdint>

namespace tandem {

constexpr uint64_t HashedBits(uint64_t seed, uint64_t index) {
  uint64_t x = seed * 0x9e3779b97f4a7c15U + index;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Uniform in [-bound, bound). index: row * cols + col of the matrix.
constexpr float HashedUniform(uint64_t seed, uint64_t index, float bound) {
  const uint64_t x = HashedBits(seed, index);
  // 24 bits: every step is exact in fp32.
  const auto centered = static_cast<int32_t>(x >> 40) - (1 << 23);
  return static_cast<float>(centered) * (bound / static_cast<float>(1 << 23));
}

}  // namespace tandem
