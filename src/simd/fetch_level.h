// Where a cache line is fetched to ahead of its use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tandem {

// kNonTemporal: into L1, to be the first to go, and past the caches below where the processor can.
enum class FetchLevel : uint8_t { kL1, kL2, kNonTemporal };

constexpr std::array<FetchLevel, 3> kFetchLevels = {FetchLevel::kL1, FetchLevel::kL2,
                                                    FetchLevel::kNonTemporal};

constexpr std::string_view FetchLevelName(FetchLevel level) {
  switch (level) {
    case FetchLevel::kL1:
      return "L1";
    case FetchLevel::kL2:
      return "L2";
    case FetchLevel::kNonTemporal:
      return "non-temporal";
  }
  return "?";
}

// A hint: any address will do.
template <FetchLevel kLevel>
[[gnu::always_inline]] inline void FetchLine(const void* line) {
  constexpr int kLocality = kLevel == FetchLevel::kL1 ? 3 : kLevel == FetchLevel::kL2 ? 2 : 0;
  __builtin_prefetch(line, 0, kLocality);
}

}  // namespace tandem
