#include "server/new_ids.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <random>

namespace tandem {
namespace {

// splitmix64 of a counter.
uint64_t NextMixed(uint64_t salt) {
  static std::atomic<uint64_t> counter{0};
  uint64_t mixed = (salt << 32) + ++counter * 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31);
}

uint64_t Salt() {
  static const uint64_t salt = std::random_device{}();
  return salt;
}

}  // namespace

std::string NewId() {
  return fmt::format("{:08x}{:016x}", static_cast<uint32_t>(Salt()), NextMixed(Salt()));
}

std::string NewCallId(ToolFormat format) {
  constexpr size_t kShortIdLength = 9;
  const bool is_short = format == ToolFormat::kMistral || format == ToolFormat::kMistralArgs;
  if (!is_short) return "call_" + NewId();
  return fmt::format("{:016x}", NextMixed(Salt())).substr(0, kShortIdLength);
}

}  // namespace tandem
