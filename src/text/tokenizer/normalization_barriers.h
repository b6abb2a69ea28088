// Characters that Hugging Face's normalizers leave where and as they are, because their Unicode tables are
// older than the characters: marks with a combining class, and parts of compositions. To be equal,
// normalization must not move anything across them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace tandem {

// Sorted; both ends included. Whole blocks where the block is newer than those tables.
inline constexpr std::array<std::pair<uint32_t, uint32_t>, 45> kNormalizationBarriers = {
    {{0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
     {0xA82C, 0xA82C},   {0x105C0, 0x105FF}, {0x10D24, 0x10D27}, {0x10D40, 0x10D8F}, {0x10EAB, 0x10EAC},
     {0x10EFC, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
     {0x11380, 0x113FF}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938},
     {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
     {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
     {0x16100, 0x1613F}, {0x16D40, 0x16D7F}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
     {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5D0, 0x1E5FF}, {0x1E6C0, 0x1E6FF}}};

constexpr bool IsNormalizationBarrier(uint32_t c) {
  const auto* const behind =
      std::upper_bound(kNormalizationBarriers.begin(), kNormalizationBarriers.end(), c,
                       [](uint32_t value, const auto& range) { return value < range.first; });
  return behind != kNormalizationBarriers.begin() && c <= (behind - 1)->second;
}

}  // namespace tandem
