#include <fmt/format.h>

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/split_regex.h"
#include "text/tokenizer/unicode_additions.h"

namespace tandem {
namespace {

// Unicode's White_Space, and its complement.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

constexpr std::string_view kCategories[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc",
                                            "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
                                            "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So",
                                            "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn"};

bool IsCategory(std::string_view name) {
  for (const std::string_view category : kCategories)
    if (name == category) return true;
  return false;
}

std::string_view AdditionsOf(std::string_view category) {
  for (const auto& [name, ranges] : kUnicodeAdditions)
    if (name == category) return ranges;
  return {};
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    while (pos_ < pattern_.size()) TANDEM_RETURN_IF_ERROR(Step());
    return std::move(out_);
  }

 private:
  Error Unsupported(std::string_view what) const {
    return MakeError(ErrorCode::kUnsupported, "regular expression \"{}\": {} at offset {} is not supported",
                     pattern_, what, pos_);
  }

  char Peek(size_t ahead = 0) const { return pos_ + ahead < pattern_.size() ? pattern_[pos_ + ahead] : '\0'; }

  Status Step() {
    const char c = Peek();
    switch (c) {
      case '\\':
        atom_begin_ = out_.size();
        return Escape(/*in_class=*/false);
      case '[':
        atom_begin_ = out_.size();
        return CharacterClass();
      case '(':
        return OpenGroup();
      case ')':
        if (group_begins_.empty()) return Unsupported("an unmatched ')'");
        atom_begin_ = group_begins_.back();
        group_begins_.pop_back();
        Copy(1);
        return {};
      case '{':
        return Interval();
      case '*':
      case '+':
      case '?':
      case '|':
        Copy(1);
        return {};
      default:
        atom_begin_ = out_.size();
        Copy(1);
        // The bytes of one character stay one atom.
        while ((static_cast<unsigned char>(Peek()) & 0xC0U) == 0x80U) Copy(1);
        return {};
    }
  }

  void Copy(size_t count) {
    out_.append(pattern_.substr(pos_, count));
    pos_ += count;
  }

  Status OpenGroup() {
    group_begins_.push_back(out_.size());
    const std::string_view rest = pattern_.substr(pos_);
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (rest.substr(0, opening.size()) == opening) {
        Copy(opening.size());
        return {};
      }
    }
    // Option (?i) governs the rest of the enclosing alternation in Ruby syntax; at the start both agree.
    if (pos_ == 0 && rest.substr(0, 4) == "(?i)") {
      group_begins_.pop_back();
      Copy(4);
      return {};
    }
    if (Peek(1) == '?' || Peek(1) == '*') return Unsupported("this kind of group");
    Copy(1);
    return {};
  }

  // {n}, {n,}, {,m}, {n,m}; anything else is a literal brace.
  Status Interval() {
    size_t length = 1;
    size_t num_digits = 0;
    while (std::isdigit(static_cast<unsigned char>(Peek(length))) != 0 || Peek(length) == ',') {
      if (Peek(length) != ',') ++num_digits;
      ++length;
    }
    if (num_digits == 0 || Peek(length) != '}') {
      atom_begin_ = out_.size();
      out_ += "\\{";
      ++pos_;
      return {};
    }
    const std::string_view interval = pattern_.substr(pos_, length + 1);
    pos_ += length + 1;
    if (interval[1] == ',') {
      out_ += fmt::format("{{0{}", interval.substr(1));
    } else {
      out_.append(interval);
    }
    const bool fixed = interval.find(',') == std::string_view::npos;
    if (Peek() == '+' || (Peek() == '?' && fixed)) {
      // A second quantifier in Ruby syntax, a possessive or lazy mark in PCRE2.
      out_.insert(atom_begin_, "(?:");
      out_ += ')';
    }
    return {};
  }

  Status CharacterClass() {
    Copy(1);
    if (Peek() == '^') Copy(1);
    if (Peek() == ']') return Unsupported("an empty character class");
    while (pos_ < pattern_.size() && Peek() != ']') {
      if (Peek() == '[') return Unsupported("a set inside a character class");
      if (Peek() == '&' && Peek(1) == '&') return Unsupported("an intersection of character classes");
      if (Peek() == '\\') {
        TANDEM_RETURN_IF_ERROR(Escape(/*in_class=*/true));
      } else {
        Copy(1);
      }
    }
    if (pos_ >= pattern_.size()) return Unsupported("an unclosed character class");
    Copy(1);
    return {};
  }

  Status Escape(bool in_class) {
    const char c = Peek(1);
    switch (c) {
      case 's':
        pos_ += 2;
        out_ += in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
        return {};
      case 'S':
        pos_ += 2;
        out_ += in_class ? std::string(kNotSpaces) : fmt::format("[^{}]", kSpaces);
        return {};
      case 'd':
        pos_ += 2;
        return Category("Nd", /*negated=*/false, in_class);
      case 'D':
        pos_ += 2;
        return Category("Nd", /*negated=*/true, in_class);
      case 'p':
      case 'P':
        return Property(c == 'P', in_class);
      case 'u': {
        for (size_t i = 2; i < 6; ++i)
          if (std::isxdigit(static_cast<unsigned char>(Peek(i))) == 0) return Unsupported("this \\u escape");
        out_ += fmt::format("\\x{{{}}}", pattern_.substr(pos_ + 2, 4));
        pos_ += 6;
        return {};
      }
      case 'x': {
        size_t length = 2;
        if (Peek(2) == '{') {
          const size_t close = pattern_.find('}', pos_);
          if (close == std::string_view::npos) return Unsupported("this \\x escape");
          length = close - pos_ + 1;
        } else {
          while (length < 4 && std::isxdigit(static_cast<unsigned char>(Peek(length))) != 0) ++length;
        }
        Copy(length);
        return {};
      }
      case 'A':
      case 'z':
        if (in_class) return Unsupported("this escape");
        Copy(2);
        return {};
      default:
        break;
    }
    const bool plain = c == 'r' || c == 'n' || c == 't' || c == 'f' || c == 'a' || c == 'e';
    const auto byte = static_cast<unsigned char>(c);
    if (!plain && (c == '\0' || byte >= 0x80 || std::isalnum(byte) != 0)) return Unsupported("this escape");
    Copy(2);
    return {};
  }

  Status Property(bool negated, bool in_class) {
    std::string_view name;
    size_t length = 0;
    if (Peek(2) == '{') {
      const size_t close = pattern_.find('}', pos_);
      if (close == std::string_view::npos) return Unsupported("this property");
      name = pattern_.substr(pos_ + 3, close - pos_ - 3);
      length = close - pos_ + 1;
    }
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (!IsCategory(name)) return Unsupported("this property");
    pos_ += length;
    return Category(name, negated, in_class);
  }

  Status Category(std::string_view name, bool negated, bool in_class) {
    const std::string_view additions = AdditionsOf(name);
    if (additions.empty()) {
      out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);
    } else if (!in_class) {
      out_ += fmt::format("[{}\\p{{{}}}{}]", negated ? "^" : "", name, additions);
    } else if (!negated) {
      out_ += fmt::format("\\p{{{}}}{}", name, additions);
    } else {
      return Unsupported("a negated property inside a character class");
    }
    return {};
  }

  std::string_view pattern_;
  size_t pos_ = 0;
  std::string out_;
  size_t atom_begin_ = 0;  // in out_: what a quantifier that follows would repeat
  std::vector<size_t> group_begins_;
};

}  // namespace

Result<std::string> TranslateOniguruma(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace tandem
