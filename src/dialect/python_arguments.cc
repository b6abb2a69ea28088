#include <nlohmann/json.hpp>
#include <optional>

#include "base/utf8.h"
#include "dialect/pythonic_call.h"

namespace tandem {
namespace {

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// No argument's name, number or word is longer.
constexpr size_t kMaxWordBytes = 256;

// A byte of a string's value into that of a JSON string.
void AppendJsonByte(char c, std::string* json) {
  switch (c) {
    case '"':
      json->append("\\\"");
      return;
    case '\\':
      json->append("\\\\");
      return;
    case '\n':
      json->append("\\n");
      return;
    case '\r':
      json->append("\\r");
      return;
    case '\t':
      json->append("\\t");
      return;
    default:
      if (static_cast<unsigned char>(c) < 0x20) {
        json->append(fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
      } else {
        json->push_back(c);
      }
  }
}

std::optional<uint32_t> ParseHex(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return value;
}

// The escape at *pos.
Scan ReadEscape(std::string_view text, size_t* pos, std::string* json) {
  if (*pos + 1 >= text.size()) return Scan::kMore;
  const char kind = text[*pos + 1];
  const size_t hex_digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  if (hex_digits > 0) {
    const std::string_view digits = text.substr(*pos + 2, hex_digits);
    const auto code_point = ParseHex(digits);
    if (!code_point || *code_point > 0x10FFFF) return Scan::kNo;
    if (digits.size() < hex_digits) return Scan::kMore;
    if (*code_point >= 0xD800 && *code_point < 0xE000) {
      // Half of a pair, as JSON writes them too.
      json->append(fmt::format("\\u{:04x}", *code_point));
    } else {
      std::string character;
      AppendUtf8(*code_point, &character);
      for (const char c : character) AppendJsonByte(c, json);
    }
    *pos += 2 + hex_digits;
    return Scan::kDone;
  }
  switch (kind) {
    case 'n':
      AppendJsonByte('\n', json);
      break;
    case 'r':
      AppendJsonByte('\r', json);
      break;
    case 't':
      AppendJsonByte('\t', json);
      break;
    case 'a':
      AppendJsonByte('\a', json);
      break;
    case 'b':
      AppendJsonByte('\b', json);
      break;
    case 'f':
      AppendJsonByte('\f', json);
      break;
    case 'v':
      AppendJsonByte('\v', json);
      break;
    case '0':
      AppendJsonByte('\0', json);
      break;
    case '\n':
      break;
    case '\\':
    case '\'':
    case '"':
    case '/':
      AppendJsonByte(kind, json);
      break;
    default:
      // Python keeps what it does not know; the byte itself is read next.
      AppendJsonByte('\\', json);
      *pos += 1;
      return Scan::kDone;
  }
  *pos += 2;
  return Scan::kDone;
}

// A number or a word of Python as JSON; empty if it is neither.
std::string ScalarAsJson(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  std::string number;
  for (size_t i = word.starts_with('+') ? 1 : 0; i < word.size(); ++i) {
    const char c = word[i];
    if (c == '_') continue;
    const bool digit_before = !number.empty() && number.back() >= '0' && number.back() <= '9';
    const bool digit_after = i + 1 < word.size() && word[i + 1] >= '0' && word[i + 1] <= '9';
    if (c == '.' && !digit_before) number += '0';
    number += c;
    if (c == '.' && !digit_after) number += '0';
  }
  return nlohmann::json::parse(number, nullptr, false).is_number() ? number : "";
}

}  // namespace

ArgumentsReader::Status PythonArguments::Read(std::string_view text, size_t* used, std::string* json) {
  if (closers_.empty()) {
    closers_ = ")";
    json->push_back('{');
  }
  *used = 0;
  for (;;) {
    const Scan scan = Step(text, used, json);
    if (closers_.empty()) return Status::kDone;
    if (scan == Scan::kMore) return Status::kMore;
    if (scan == Scan::kNo) return Status::kBroken;
  }
}

Scan PythonArguments::Step(std::string_view text, size_t* pos, std::string* json) {
  if (place_ == Place::kString) return ReadString(text, pos, json);
  *pos = SkipSpace(text, *pos);
  if (*pos >= text.size()) return Scan::kMore;
  const char c = text[*pos];
  switch (place_) {
    case Place::kArgument:
      return c == ')' ? Close(pos, json) : ReadArgumentName(text, pos, json);
    case Place::kValue:
      return ReadValue(text, pos, json);
    case Place::kAfterValue:
      if (c == closers_.back()) return Close(pos, json);
      if (c != ',') return Scan::kNo;
      ++*pos;
      place_ = closers_.back() == ')'   ? Place::kArgument
               : closers_.back() == ']' ? Place::kValue
                                        : Place::kDictKey;
      return Scan::kDone;
    case Place::kDictKey:
      if (c == '}') return Close(pos, json);
      string_is_key_ = true;
      return c == '"' || c == '\'' ? OpenString(text, pos, json) : Scan::kNo;
    case Place::kColon:
      if (c != ':') return Scan::kNo;
      ++*pos;
      json->append(": ");
      place_ = Place::kValue;
      return Scan::kDone;
    case Place::kString:
      break;
  }
  return Scan::kNo;
}

Scan PythonArguments::ReadArgumentName(std::string_view text, size_t* pos, std::string* json) {
  size_t end = *pos;
  while (end < text.size() && IsNameByte(text[end])) ++end;
  if (end == *pos || end - *pos > kMaxWordBytes) return Scan::kNo;
  size_t behind = SkipSpace(text, end);
  if (const Scan scan = ScanMarker(text, "=", &behind); scan != Scan::kDone) return scan;
  Separate(json);
  json->append("\"").append(text.substr(*pos, end - *pos)).append("\": ");
  *pos = behind;
  place_ = Place::kValue;
  return Scan::kDone;
}

Scan PythonArguments::ReadValue(std::string_view text, size_t* pos, std::string* json) {
  const char c = text[*pos];
  const bool in_list = closers_.back() == ']';
  if (in_list && c == ']') return Close(pos, json);
  if (c == '"' || c == '\'') {
    string_is_key_ = false;
    return OpenString(text, pos, json);
  }
  if (c != '[' && c != '{') return ReadScalar(text, pos, json);
  if (in_list) Separate(json);
  json->push_back(c);
  closers_.push_back(c == '[' ? ']' : '}');
  needs_comma_ = false;
  place_ = c == '[' ? Place::kValue : Place::kDictKey;
  ++*pos;
  return Scan::kDone;
}

Scan PythonArguments::ReadScalar(std::string_view text, size_t* pos, std::string* json) {
  const size_t end = text.find_first_of(" \t\r\n,)]}", *pos);
  if (end == std::string_view::npos) {
    return text.size() - *pos > kMaxWordBytes ? Scan::kNo : Scan::kMore;
  }
  if (end - *pos > kMaxWordBytes) return Scan::kNo;
  const std::string scalar = ScalarAsJson(text.substr(*pos, end - *pos));
  if (scalar.empty()) return Scan::kNo;
  if (closers_.back() == ']') Separate(json);
  json->append(scalar);
  *pos = end;
  needs_comma_ = true;
  place_ = Place::kAfterValue;
  return Scan::kDone;
}

Scan PythonArguments::OpenString(std::string_view text, size_t* pos, std::string* json) {
  const std::string_view triple = text[*pos] == '"' ? R"(""")" : "'''";
  size_t behind = *pos;
  const Scan scan = ScanMarker(text, triple, &behind);
  // One or two quotes: what follows says which kind of string this is.
  if (scan == Scan::kMore) return Scan::kMore;
  quote_ = scan == Scan::kDone ? triple : triple.substr(0, 1);
  if (string_is_key_ || closers_.back() == ']') Separate(json);
  json->push_back('"');
  *pos += quote_.size();
  place_ = Place::kString;
  return Scan::kDone;
}

Scan PythonArguments::ReadString(std::string_view text, size_t* pos, std::string* json) {
  while (*pos < text.size()) {
    if (text[*pos] == '\\') {
      if (const Scan scan = ReadEscape(text, pos, json); scan != Scan::kDone) return scan;
      continue;
    }
    const Scan end = text[*pos] == quote_[0] ? ScanMarker(text, quote_, pos) : Scan::kNo;
    if (end == Scan::kMore) return Scan::kMore;
    if (end == Scan::kDone) {
      json->push_back('"');
      needs_comma_ = true;
      place_ = string_is_key_ ? Place::kColon : Place::kAfterValue;
      return Scan::kDone;
    }
    AppendJsonByte(text[(*pos)++], json);
  }
  return Scan::kMore;
}

Scan PythonArguments::Close(size_t* pos, std::string* json) {
  ++*pos;
  json->push_back(closers_.back() == ')' ? '}' : closers_.back());
  closers_.pop_back();
  needs_comma_ = true;
  place_ = Place::kAfterValue;
  return Scan::kDone;
}

void PythonArguments::Separate(std::string* json) {
  if (needs_comma_) json->append(", ");
  needs_comma_ = false;
}

}  // namespace tandem
