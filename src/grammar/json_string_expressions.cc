#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/utf8.h"
#include "grammar/json_text_expressions.h"

namespace tandem {
namespace {

constexpr std::pair<uint32_t, char> kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                       {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

std::string EscapedText(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && c != '"' && c != '\\') {
      escaped += c;
      continue;
    }
    std::string escape = fmt::format("\\u{:04x}", byte);
    for (const auto& [value, letter] : kShortEscapes)
      if (value == byte) escape = {'\\', letter};
    escaped += escape;
  }
  return escaped;
}

}  // namespace

const CharSet& PlainStringChars() {
  static const CharSet set = CharSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.Complement();
  return set;
}

std::string QuotedJson(std::string_view text) {
  return "\"" + EscapedText(text) + "\"";
}

Expression EscapedForJson(const Expression& content) {
  switch (content.kind) {
    case Expression::Kind::kLiteral:
      return Literal(EscapedText(content.literal));
    case Expression::Kind::kSet: {
      CharSet plain = content.set.Minus(PlainStringChars().Complement());
      if (!plain.empty()) return OneOf(std::move(plain));
      std::vector<Expression> escapes;
      for (const auto& range : content.set.ranges())
        for (uint32_t c = range.first; c <= range.last; ++c) {
          std::string text;
          AppendUtf8(c, &text);
          escapes.push_back(Literal(EscapedText(text)));
        }
      return Choice(std::move(escapes));
    }
    default:
      break;
  }
  Expression escaped = content;
  for (Expression& child : escaped.children) child = EscapedForJson(child);
  return escaped;
}

}  // namespace tandem
