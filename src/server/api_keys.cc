#include "server/api_keys.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <unordered_map>

namespace tandem {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  for (;;) {
    const size_t begin = line.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return words;
    const size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.emplace_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
}

Result<std::string> ReadWholeFile(const std::string& path) {
  const auto error = [&] {
    return MakeError(ErrorCode::kIo, "cannot read the keys of {}: {}", path, std::strerror(errno));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (!file) return error();
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    text.append(buffer.data(), count);
  }
  if (std::ferror(file.get()) != 0) return error();
  return text;
}

Result<ApiKey> ParseKeyLine(std::vector<std::string> words, const std::string& path, int number) {
  const auto error = [&](std::string_view what) {
    return MakeError(ErrorCode::kMalformedFile, "{}:{}: {}", path, number, what);
  };
  if (words.size() > 2) return error("more than a name and a key");
  ApiKey key{.name = words.size() == 2 ? std::move(words[0]) : fmt::format("line{}", number),
             .key = std::move(words.back())};
  if (const Status status = CheckApiKey(key.key); !status.ok()) return error(status.error().message);
  // A name ends up in logs.
  if (!CheckApiKey(key.name).ok()) return error("the name is longer than a key may be or not ASCII");
  return key;
}

}  // namespace

Status CheckApiKey(std::string_view key) {
  if (key.empty()) return MakeError(ErrorCode::kInvalidArgument, "the key is empty");
  if (key.size() > kMaxApiKeyBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "the key is longer than {} bytes", kMaxApiKeyBytes);
  }
  if (std::any_of(key.begin(), key.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "the key has a space, a control character or one that is not ASCII");
  }
  return {};
}

Result<std::vector<ApiKey>> ReadApiKeyFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  std::istringstream lines(text);
  std::vector<ApiKey> keys;
  std::unordered_map<std::string, int> names;
  std::unordered_map<std::string, int> line_of_key;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::vector<std::string> words = Words(line);
    if (words.empty() || words.front().starts_with('#')) continue;
    TANDEM_ASSIGN_OR_RETURN(ApiKey key, ParseKeyLine(std::move(words), path, number));
    if (const auto [first, is_new] = names.emplace(key.name, number); !is_new) {
      return MakeError(ErrorCode::kMalformedFile, "{}:{}: the name '{}' is that of line {} too", path, number,
                       key.name, first->second);
    }
    if (const auto [first, is_new] = line_of_key.emplace(key.key, number); !is_new) {
      return MakeError(ErrorCode::kMalformedFile, "{}:{}: the key is that of line {} too", path, number,
                       first->second);
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) return MakeError(ErrorCode::kMalformedFile, "{} has no key", path);
  return keys;
}

Status CheckNoDuplicates(const std::vector<ApiKey>& keys) {
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (keys[i].name == keys[j].name) {
        return MakeError(ErrorCode::kInvalidArgument, "two keys have the name '{}'", keys[i].name);
      }
      if (keys[i].key == keys[j].key) {
        return MakeError(ErrorCode::kInvalidArgument, "the keys '{}' and '{}' are the same", keys[j].name,
                         keys[i].name);
      }
    }
  }
  return {};
}

ApiKeys::PaddedKey ApiKeys::Pad(std::string_view key) {
  PaddedKey padded{};
  std::memcpy(padded.data(), key.data(), std::min(key.size(), padded.size()));
  return padded;
}

ApiKeys::ApiKeys(const std::vector<ApiKey>& keys) {
  for (const ApiKey& key : keys) keys_.push_back({key.name, Pad(key.key)});
}

const std::string* ApiKeys::Find(std::string_view given) const {
  // No key has a zero byte, so that keys are equal where their padded forms are.
  if (given.empty() || given.size() > kMaxApiKeyBytes || given.find('\0') != std::string_view::npos) {
    return nullptr;
  }
  const PaddedKey padded = Pad(given);
  size_t found = 0;  // one more than the index of the key, 0: none
  for (size_t i = 0; i < keys_.size(); ++i) {
    size_t difference = 0;
    for (size_t byte = 0; byte < kMaxApiKeyBytes; ++byte) {
      difference |= static_cast<size_t>(padded[byte] ^ keys_[i].key[byte]);
    }
    // No branch: all ones where there is no difference, else 0.
    const size_t is_equal = size_t{0} - ((difference - 1) >> (std::numeric_limits<size_t>::digits - 1));
    found |= is_equal & (i + 1);
  }
  return found == 0 ? nullptr : &keys_[found - 1].name;
}

}  // namespace tandem
