#include "tracing/trace_context.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <unordered_set>

namespace tandem {
namespace {

constexpr size_t kTraceparentLength = 55;  // of version 00: 2 + 1 + 32 + 1 + 16 + 1 + 2
constexpr size_t kMaxStateMembers = 32;
constexpr size_t kMaxStateKeyLength = 256;
constexpr size_t kMaxStateValueLength = 256;
constexpr uint8_t kSampledFlag = 1;

bool IsLower(char c) {
  return c >= 'a' && c <= 'z';
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// -1: none; capitals are none.
int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// text: two digits a byte.
bool ParseHex(std::string_view text, std::span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

std::string HexOfBytes(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

template <typename Id>
Id RandomId() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  Id id{};
  while (id == Id{}) {
    for (size_t i = 0; i < id.size(); i += sizeof(uint64_t)) {
      const uint64_t bits = generator();
      std::memcpy(id.data() + i, &bits, sizeof(bits));
    }
  }
  return id;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool IsStateKey(std::string_view key) {
  if (key.empty() || key.size() > kMaxStateKeyLength || !(IsLower(key.front()) || IsDigit(key.front()))) {
    return false;
  }
  return std::all_of(key.begin(), key.end(), [](char c) {
    return IsLower(c) || IsDigit(c) || c == '_' || c == '-' || c == '*' || c == '/' || c == '@';
  });
}

bool IsStateValue(std::string_view value) {
  return !value.empty() && value.size() <= kMaxStateValueLength &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != ',' && c != '='; });
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kTraceparentLength) return std::nullopt;
  std::array<uint8_t, 1> version{};
  std::array<uint8_t, 1> flags{};
  TraceContext context;
  const bool well_formed = ParseHex(header, version) && header[2] == '-' &&
                           ParseHex(header.substr(3), context.trace_id) && header[35] == '-' &&
                           ParseHex(header.substr(36), context.span_id) && header[52] == '-' &&
                           ParseHex(header.substr(53), flags);
  if (!well_formed || version[0] == 0xff) return std::nullopt;
  if (header.size() > kTraceparentLength && (version[0] == 0 || header[kTraceparentLength] != '-')) {
    return std::nullopt;
  }
  if (context.trace_id == TraceId{} || context.span_id == SpanId{}) return std::nullopt;
  context.sampled = (flags[0] & kSampledFlag) != 0;
  return context;
}

std::string JoinTracestate(const std::vector<std::string_view>& headers) {
  std::string joined;
  std::unordered_set<std::string_view> keys;
  for (std::string_view rest : headers) {
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view member = Trim(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      if (member.empty()) continue;
      const size_t equals = member.find('=');
      if (equals == std::string_view::npos) return {};
      const std::string_view key = member.substr(0, equals);
      if (!IsStateKey(key) || !IsStateValue(member.substr(equals + 1)) || !keys.insert(key).second) return {};
      if (keys.size() > kMaxStateMembers) return {};
      if (!joined.empty()) joined += ',';
      joined += member;
    }
  }
  return joined;
}

TraceId NewTraceId() {
  return RandomId<TraceId>();
}

SpanId NewSpanId() {
  return RandomId<SpanId>();
}

std::string HexOf(const TraceId& id) {
  return HexOfBytes(id);
}

std::string HexOf(const SpanId& id) {
  return HexOfBytes(id);
}

}  // namespace tandem
