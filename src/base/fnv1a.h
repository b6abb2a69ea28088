// A hash that is the same on every machine and in every version: file names and seeds depend on it.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

// FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv). seed: changes the start; 0 is the standard's.
constexpr uint64_t Fnv1a(std::string_view text, uint64_t seed = 0) {
  uint64_t hash = 0xcbf29ce484222325U ^ seed;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace tandem
