#include "base/block_hash.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <random>

#include "base/check.h"
#include "base/param_error.h"

namespace tandem {

Result<SipHashKey> MakeBlockHashKey(std::string_view hex) {
  SipHashKey key = {};
  if (hex.empty()) {
    std::random_device random;
    for (uint64_t& half : key) half = uint64_t{random()} << 32 | random();
    return key;
  }
  constexpr size_t kDigitsOfHalf = 16;
  const bool all_digits = std::ranges::all_of(hex, [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (hex.size() != kDigitsOfHalf * key.size() || !all_digits) {
    return MakeParamError(ErrorCode::kInvalidArgument, "prefix-cache-key",
                          "a prefix cache key is 32 hexadecimal digits, not {} characters{}", hex.size(),
                          all_digits ? "" : " with others among them");
  }
  for (size_t i = 0; i < key.size(); ++i) {
    const std::string_view half = hex.substr(i * kDigitsOfHalf, kDigitsOfHalf);
    std::from_chars(half.data(), half.data() + half.size(), key[i], 16);
  }
  return key;
}

BlockHash BlockHasher::Root(std::string_view salt) const {
  return {SipHash128(key_, std::as_bytes(std::span(salt)))};
}

BlockHash BlockHasher::Next(const BlockHash& before, std::span<const int32_t> tokens) const {
  TANDEM_CHECK(static_cast<int64_t>(tokens.size()) == block_size_,
               "a block of {} tokens is hashed as one of {}", tokens.size(), block_size_);
  std::vector<std::byte> bytes(sizeof(before.halves) + tokens.size_bytes());
  const auto head = std::as_bytes(std::span(before.halves));
  std::ranges::copy(std::as_bytes(tokens), std::ranges::copy(head, bytes.begin()).out);
  return {SipHash128(key_, bytes)};
}

std::vector<BlockHash> BlockHasher::FullBlocks(const BlockHash& root, std::span<const int32_t> tokens) const {
  const auto block_size = static_cast<size_t>(block_size_);
  std::vector<BlockHash> hashes;
  hashes.reserve(tokens.size() / block_size);
  for (size_t end = block_size; end <= tokens.size(); end += block_size)
    hashes.push_back(
        Next(hashes.empty() ? root : hashes.back(), tokens.subspan(end - block_size, block_size)));
  return hashes;
}

}  // namespace tandem
