#include "base/utf8.h"

namespace tandem {
namespace {

enum class Validity { kValid, kInvalid, kIncomplete };

struct Scan {
  Validity validity;
  size_t num_bytes;  // of the character, or of the maximal subpart that is invalid or incomplete
};

// Well-formed byte sequences, table 3-7 of the Unicode standard. bytes is not empty.
Scan ScanCharacter(std::string_view bytes) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte_at(0);
  if (lead < 0x80) return {Validity::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Validity::kInvalid, 1};
  const size_t length = lead < 0xE0 ? 2 : (lead < 0xF0 ? 3 : 4);
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i >= bytes.size()) return {Validity::kIncomplete, i};
    if (byte_at(i) < low || byte_at(i) > high) return {Validity::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Validity::kValid, length};
}

size_t AsciiPrefix(std::string_view bytes) {
  size_t n = 0;
  while (n < bytes.size() && static_cast<uint8_t>(bytes[n]) < 0x80) ++n;
  return n;
}

size_t AppendComplete(std::string_view bytes, std::string* out, Alignment* alignment) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const size_t ascii = AsciiPrefix(bytes.substr(pos));
    out->append(bytes.substr(pos, ascii));
    if (alignment != nullptr) alignment->Keep(ascii);
    pos += ascii;
    if (pos == bytes.size()) break;
    const Scan scan = ScanCharacter(bytes.substr(pos));
    if (scan.validity == Validity::kIncomplete) break;
    const bool valid = scan.validity == Validity::kValid;
    out->append(valid ? bytes.substr(pos, scan.num_bytes) : kReplacementCharacter);
    if (alignment != nullptr) {
      valid ? alignment->Keep(scan.num_bytes)
            : alignment->Change(scan.num_bytes, kReplacementCharacter.size());
    }
    pos += scan.num_bytes;
  }
  return pos;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    pos += AsciiPrefix(text.substr(pos));
    if (pos == text.size()) break;
    const Scan scan = ScanCharacter(text.substr(pos));
    if (scan.validity != Validity::kValid) return false;
    pos += scan.num_bytes;
  }
  return true;
}

size_t WellFormedUtf8Length(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const Scan scan = ScanCharacter(bytes);
  return scan.validity == Validity::kValid ? scan.num_bytes : 0;
}

uint32_t DecodeUtf8(std::string_view text, size_t pos) {
  const auto byte_at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[pos + i])); };
  switch (Utf8Length(text[pos])) {
    case 1:
      return byte_at(0);
    case 2:
      return (byte_at(0) & 0x1FU) << 6 | (byte_at(1) & 0x3FU);
    case 3:
      return (byte_at(0) & 0x0FU) << 12 | (byte_at(1) & 0x3FU) << 6 | (byte_at(2) & 0x3FU);
    default:
      return (byte_at(0) & 0x07U) << 18 | (byte_at(1) & 0x3FU) << 12 | (byte_at(2) & 0x3FU) << 6 |
             (byte_at(3) & 0x3FU);
  }
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code_point >> 6));
    out->push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code_point >> 12));
    out->push_back(static_cast<char>(0x80 | (code_point >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | code_point >> 18));
    out->push_back(static_cast<char>(0x80 | (code_point >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code_point >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  }
}

size_t AppendCompleteUtf8(std::string_view bytes, std::string* out) {
  return AppendComplete(bytes, out, nullptr);
}

std::string ReplaceInvalidUtf8(std::string_view bytes, Alignment* alignment) {
  std::string out;
  out.reserve(bytes.size());
  const size_t complete = AppendComplete(bytes, &out, alignment);
  if (complete < bytes.size()) {
    out.append(kReplacementCharacter);
    if (alignment != nullptr) alignment->Change(bytes.size() - complete, kReplacementCharacter.size());
  }
  return out;
}

}  // namespace tandem
