#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "base/white_space.h"

namespace tandem {
namespace {

// Word characters: alphabetic, marks, decimal digits, connectors, joiners. The ranges are the symbols that
// are Other_Alphabetic (circled letters).
constexpr std::string_view kWordCharacter =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
    R"(\x{1f170}-\x{1f189}])";

SplitRegex WordRegex() {
  Result<SplitRegex> regex = SplitRegex::Compile(kWordCharacter);
  TANDEM_CHECK(regex.ok(), "{}", regex.error().message);
  return *std::move(regex);
}

size_t PreviousCharacter(std::string_view text, size_t pos) {
  do {
    --pos;
  } while (pos > 0 && (static_cast<uint8_t>(text[pos]) & 0xC0U) == 0x80U);
  return pos;
}

size_t BeginOfSpacesBefore(std::string_view text, size_t pos) {
  while (pos > 0) {
    const size_t previous = PreviousCharacter(text, pos);
    if (!IsWhiteSpace(DecodeUtf8(text, previous))) break;
    pos = previous;
  }
  return pos;
}

size_t EndOfSpacesBehind(std::string_view text, size_t pos) {
  while (pos < text.size() && IsWhiteSpace(DecodeUtf8(text, pos))) pos += Utf8Length(text[pos]);
  return pos;
}

bool IsWordCharacter(const SplitRegex& word, std::string_view text, size_t pos) {
  return word.Find(text.substr(pos, Utf8Length(text[pos])), 0).has_value();
}

}  // namespace

bool IsControlToken(const AddedToken& token) {
  constexpr std::string_view kBrackets[][2] = {{"<|", "|>"}, {"<\uFF5C", "\uFF5C>"}};
  return token.special || std::any_of(std::begin(kBrackets), std::end(kBrackets), [&](const auto& pair) {
           return token.content.size() > pair[0].size() + pair[1].size() &&
                  token.content.starts_with(pair[0]) && token.content.ends_with(pair[1]);
         });
}

AddedTokenMatcher::AddedTokenMatcher() : nodes_(1), starts_token_(256, false), word_(WordRegex()) {}

void AddedTokenMatcher::Add(const AddedToken& token, std::string_view spelling) {
  if (spelling.empty()) return;
  int32_t node = 0;
  for (const char c : spelling) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      auto& children = nodes_[node].children;
      children.insert(std::lower_bound(children.begin(), children.end(), std::pair{byte, 0}), {byte, child});
      nodes_.emplace_back();
    }
    node = child;
  }
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  is_control_.push_back(IsControlToken(token));
  starts_token_[static_cast<uint8_t>(spelling[0])] = true;
}

int32_t AddedTokenMatcher::Child(int32_t node, uint8_t byte) const {
  const auto& children = nodes_[node].children;
  const auto it = std::lower_bound(children.begin(), children.end(), std::pair{byte, 0});
  return it != children.end() && it->first == byte ? it->second : -1;
}

int32_t AddedTokenMatcher::LongestAt(std::string_view text, size_t pos, size_t control_end,
                                     size_t* length) const {
  int32_t node = 0;
  int32_t found = -1;
  for (size_t i = pos; i < text.size(); ++i) {
    node = Child(node, static_cast<uint8_t>(text[i]));
    if (node < 0) break;
    const int32_t token = nodes_[node].token;
    if (token >= 0 && (i < control_end || !is_control_[token])) {
      found = token;
      *length = i + 1 - pos;
    }
  }
  return found;
}

void AddedTokenMatcher::Split(std::string_view text, bool include_special, const Provenance& provenance,
                              std::vector<TextSegment>* segments) const {
  Provenance::Cursor cursor(provenance);
  size_t done = 0;                                 // end of the last segment
  size_t pos = tokens_.empty() ? text.size() : 0;  // most tokenizers have none of one kind
  while (pos < text.size()) {
    if (!starts_token_[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    const size_t control_end = cursor.At(pos) == Source::kTemplate ? cursor.run_end() : pos;
    size_t length = 0;
    const int32_t index = LongestAt(text, pos, control_end, &length);
    if (index < 0) {
      ++pos;
      continue;
    }
    size_t begin = pos;
    size_t end = pos + length;
    // Also a token that is then not taken hides what begins inside it.
    pos = end;
    const AddedToken& token = tokens_[index];
    if (token.special && !include_special) continue;
    if (token.single_word) {
      const bool word_before = begin > 0 && IsWordCharacter(word_, text, PreviousCharacter(text, begin));
      const bool word_behind = end < text.size() && IsWordCharacter(word_, text, end);
      if (word_before || word_behind) continue;
    }
    if (token.lstrip) begin = std::max(BeginOfSpacesBefore(text, begin), done);
    if (token.rstrip) end = EndOfSpacesBehind(text, end);
    if (done < begin) segments->push_back({-1, done, begin});
    segments->push_back({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) segments->push_back({-1, done, text.size()});
}

}  // namespace tandem
