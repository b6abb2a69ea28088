// SipHash-2-4 with 128 bits of result: a keyed hash whose values tell nothing about the input to whoever
// lacks the key, and cannot be made to collide. (Aumasson, Bernstein: "SipHash: a fast short-input PRF",
// 2012, and the authors' 128-bit variant.)
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tandem {

using SipHashKey = std::array<uint64_t, 2>;

// The two halves of the result, as little-endian machines read its 16 bytes.
inline std::array<uint64_t, 2> SipHash128(const SipHashKey& key, std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t v0 = key[0] ^ 0x736f6d6570736575U;
  uint64_t v1 = key[1] ^ 0x646f72616e646f6dU ^ 0xeeU;
  uint64_t v2 = key[0] ^ 0x6c7967656e657261U;
  uint64_t v3 = key[1] ^ 0x7465646279746573U;
  const auto round = [&] {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  };
  const auto compress = [&](uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  };
  const size_t num_words = bytes.size() / 8;
  for (size_t i = 0; i < num_words; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i * 8, 8);
    compress(word);
  }
  uint64_t last = uint64_t{bytes.size() & 0xff} << 56;
  if (bytes.size() % 8 > 0) std::memcpy(&last, bytes.data() + num_words * 8, bytes.size() % 8);
  compress(last);
  const auto finish = [&] {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  };
  v2 ^= 0xeeU;
  const uint64_t low = finish();
  v1 ^= 0xddU;
  return {low, finish()};
}

}  // namespace tandem
