// Keys of clients: where they come from and how one is found. A key is never in an error or a log, its name
// is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem {

inline constexpr size_t kMaxApiKeyBytes = 256;

struct ApiKey {
  std::string name;
  std::string key;
};

// A key is 1 to kMaxApiKeyBytes visible ASCII characters.
Status CheckApiKey(std::string_view key);

// Lines of NAME KEY, or of a key alone, which is then named after its line (line3); empty lines and those
// that begin with # count for nothing. Errors name the line: kIo, kMalformedFile.
Result<std::vector<ApiKey>> ReadApiKeyFile(const std::string& path);

// kInvalidArgument if a name or a key is there twice.
Status CheckNoDuplicates(const std::vector<ApiKey>& keys);

class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<ApiKey>& keys);  // each as CheckApiKey has it, none twice

  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }
  // The name of the key that was given, nullptr if it is none. How long that takes says nothing of the keys
  // but their number.
  const std::string* Find(std::string_view given) const;

 private:
  using PaddedKey = std::array<uint8_t, kMaxApiKeyBytes>;  // zeros behind the key
  struct Entry {
    std::string name;
    PaddedKey key;
  };
  static PaddedKey Pad(std::string_view key);

  std::vector<Entry> keys_;
};

}  // namespace tandem
