#include "jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jinja/characters.h"
#include "jinja/error.h"
#include "jinja/literal.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

constexpr size_t kMaxSourceBytes = size_t{4} << 20;

// Longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// Line ends become \n, and the last one is dropped.
std::string NormalizeLineEnds(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      text.push_back('\n');
    } else {
      text.push_back(source[i]);
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) {
      const size_t begin = FindTagBegin(at_);
      if (begin == std::string::npos) {
        Emit(TokenType::kData, source_.substr(at_));
        MoveTo(source_.size());
        break;
      }
      Tag(begin);
    }
    Emit(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Fail(const std::string& message) const { throw TemplateError(message, line_); }

  void MoveTo(size_t position) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(position), '\n'));
    at_ = position;
  }

  void Emit(TokenType type, std::string text) {
    if (type == TokenType::kData && text.empty()) return;
    Token token;
    token.type = type;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  char At(size_t position) const { return position < source_.size() ? source_[position] : '\0'; }

  size_t FindTagBegin(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1)) {
      const char next = At(at + 1);
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  size_t SkipSpace(size_t position) const {
    return source_.size() - StripLeft(std::string_view(source_).substr(position)).size();
  }

  // Emits the text before a tag, stripped as the tag's sign (- + or none) asks.
  void TextBefore(size_t begin, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(at_, begin - at_);
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && StripLeft(text.substr(line_begin)).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    Emit(TokenType::kData, std::string(text));
    MoveTo(begin);
  }

  // Moves behind the end of a tag at position, which the closing sign precedes. Eats the white space behind
  // it after -, one newline otherwise if trim is set.
  void TagEnd(size_t position, char sign, bool trim) {
    size_t end = position + 2;
    if (sign == '-') {
      end = SkipSpace(end);
    } else if (trim && sign != '+' && At(end) == '\n') {
      ++end;
    }
    line_starting_ = At(end - 1) == '\n';
    MoveTo(end);
  }

  void Tag(size_t begin) {
    const char kind = source_[begin + 1];
    const char next = At(begin + 2);
    const char sign = next == '-' || next == '+' ? next : '\0';
    const size_t body = begin + (sign != '\0' ? 3 : 2);
    TextBefore(begin, sign, kind == '{');
    if (kind == '#') {
      Comment(body);
    } else if (kind == '%' && Raw(body)) {
      return;
    } else {
      Emit(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
      MoveTo(body);
      Code(kind == '{');
    }
  }

  void Comment(size_t body) {
    const size_t end = source_.find("#}", body);
    if (end == std::string::npos) Fail("Missing end of comment tag");
    const char sign = end > body ? source_[end - 1] : '\0';
    TagEnd(end, sign, true);
  }

  // {% raw %} ... {% endraw %}; false if this is another block.
  bool Raw(size_t body) {
    size_t at = SkipSpace(body);
    if (source_.compare(at, 3, "raw") != 0) return false;
    at = SkipSpace(at + 3);
    const char begin_sign = At(at) == '-' ? '-' : '\0';
    if (begin_sign == '-') ++at;
    if (source_.compare(at, 2, "%}") != 0) return false;
    TagEnd(at, begin_sign, false);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char sign = At(tag + 2) == '-' || At(tag + 2) == '+' ? At(tag + 2) : '\0';
      size_t end = SkipSpace(tag + (sign != '\0' ? 3 : 2));
      if (source_.compare(end, 6, "endraw") != 0) continue;
      end = SkipSpace(end + 6);
      const char end_sign = At(end) == '-' || At(end) == '+' ? At(end) : '\0';
      if (end_sign != '\0') ++end;
      if (source_.compare(end, 2, "%}") != 0) continue;
      TextBefore(tag, sign, false);
      TagEnd(end, end_sign, true);
      return true;
    }
    Fail("Missing end of raw directive");
  }

  // The tokens of a tag, up to and with its end or the end of the source.
  void Code(bool is_variable) {
    std::string open;  // the brackets that still want closing
    while (at_ < source_.size()) {
      if (open.empty() && CodeEnd(is_variable)) return;
      const char c = source_[at_];
      size_t next = at_;
      const char32_t code_point = NextCodePoint(source_, next);
      if (IsSpace(code_point)) {
        MoveTo(next);
        continue;
      }
      Token token;
      token.line = line_;
      size_t end = at_;
      if (ReadNumber(source_, end, token)) {
        tokens_.push_back(std::move(token));
        MoveTo(end);
      } else if (IsWordCharacter(code_point)) {
        Name();
      } else if (c == '\'' || c == '"') {
        String(c);
      } else {
        Operator(open);
      }
    }
  }

  bool CodeEnd(bool is_variable) {
    const std::string_view closing = is_variable ? "}}" : "%}";
    const char c = source_[at_];
    const bool has_sign = c == '-' || (c == '+' && !is_variable);
    const size_t end = has_sign ? at_ + 1 : at_;
    if (source_.compare(end, 2, closing) != 0) return false;
    Emit(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, std::string(closing));
    TagEnd(end, has_sign ? c : '\0', !is_variable);
    return true;
  }

  void Name() {
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      if (!IsWordCharacter(NextCodePoint(source_, next))) break;
      end = next;
    }
    Emit(TokenType::kName, source_.substr(at_, end - at_));
    MoveTo(end);
  }

  void String(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) Fail("string without its closing quote");
    Emit(TokenType::kString, UnescapeString(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
    MoveTo(end + 1);
  }

  void Operator(std::string& open) {
    for (std::string_view symbol : kOperators) {
      if (source_.compare(at_, symbol.size(), symbol) != 0) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') {
        open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      } else if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) Fail(fmt::format("unexpected '{}'", c));
        if (open.back() != c) Fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
        open.pop_back();
      }
      Emit(TokenType::kOperator, std::string(symbol));
      MoveTo(at_ + symbol.size());
      return;
    }
    size_t next = at_;
    NextCodePoint(source_, next);
    Fail(fmt::format("unexpected character '{}'", source_.substr(at_, next - at_)));
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    throw TemplateError(fmt::format("template longer than {} bytes", kMaxSourceBytes), 1);
  }
  return Lexer(NormalizeLineEnds(source)).Run();
}

}  // namespace tandem::jinja
