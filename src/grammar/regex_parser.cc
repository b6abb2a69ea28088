#include "grammar/regex_parser.h"

#include <optional>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace tandem {
namespace {

using Kind = Expression::Kind;

constexpr int kMaxGroupDepth = 50;
constexpr int64_t kMaxRepetitions = 100'000;

const CharSet& LineEnds() {
  static const CharSet set = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}
const CharSet& AsciiSpace() {
  static const CharSet set = {{'\t', '\r'}, {' ', ' '}};
  return set;
}
// Of all dialects together.
const CharSet& AnySpace() {
  static const CharSet set = {{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                              {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                              {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}
const CharSet& Digits() {
  static const CharSet set = {{'0', '9'}};
  return set;
}
const CharSet& WordChars() {
  static const CharSet set = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}};
  return set;
}

// A class escape has a set that it surely means, and one that it may mean in some dialect.
struct ClassEscape {
  CharSet inner;
  CharSet outer;
};

std::optional<ClassEscape> FindClassEscape(char c) {
  switch (c) {
    case 'd':
      return ClassEscape{Digits(), Digits()};
    case 'D':
      return ClassEscape{Digits().Complement(), Digits().Complement()};
    case 'w':
      return ClassEscape{WordChars(), WordChars()};
    case 'W':
      return ClassEscape{WordChars().Complement(), WordChars().Complement()};
    case 's':
      return ClassEscape{AsciiSpace(), AnySpace()};
    case 'S':
      return ClassEscape{AnySpace().Complement(), AsciiSpace().Complement()};
    default:
      return std::nullopt;
  }
}

class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : pattern_(pattern) {}

  Result<Expression> Parse() {
    TANDEM_ASSIGN_OR_RETURN(Expression all, ParseChoice(0));
    if (at_ < pattern_.size()) return Invalid(at_, "the `)` closes nothing");
    if (!RemoveAnchors(all, true, true))
      return Unsupported(anchor_at_,
                         "an anchor elsewhere than at the ends of the expression is not supported");
    return all;
  }

 private:
  Error Invalid(size_t at, std::string_view what) const {
    return MakeError(ErrorCode::kInvalidArgument, "at byte {} of the regular expression {}", at, what);
  }
  Error Unsupported(size_t at, std::string_view what) const {
    return MakeError(ErrorCode::kUnsupported, "at byte {} of the regular expression {}", at, what);
  }
  bool AtEnd() const { return at_ >= pattern_.size(); }
  bool Looks(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool Take(std::string_view text) {
    if (!Looks(text)) return false;
    at_ += text.size();
    return true;
  }

  Result<Expression> ParseChoice(int depth) {
    if (depth > kMaxGroupDepth) return Invalid(at_, "groups are nested too deep");
    std::vector<Expression> options;
    do {
      std::vector<Expression> parts;
      while (!AtEnd() && !Looks("|") && !Looks(")")) {
        TANDEM_ASSIGN_OR_RETURN(Expression part, ParseRepeated(depth));
        parts.push_back(std::move(part));
      }
      options.push_back(Sequence(std::move(parts)));
    } while (Take("|"));
    return Choice(std::move(options));
  }

  Result<Expression> ParseRepeated(int depth) {
    const size_t begin = at_;
    TANDEM_ASSIGN_OR_RETURN(Expression atom, ParseAtom(depth));
    int64_t min = 1, max = 1;
    if (Take("*")) {
      min = 0, max = Expression::kUnbounded;
    } else if (Take("+")) {
      max = Expression::kUnbounded;
    } else if (Take("?")) {
      min = 0;
    } else if (Looks("{")) {
      TANDEM_RETURN_IF_ERROR(ParseBounds(min, max));
    } else {
      return atom;
    }
    if (atom.kind == Kind::kStart || atom.kind == Kind::kEnd) return Invalid(begin, "an anchor is repeated");
    (void)Take("?");  // lazy: the same texts
    if (!AtEnd() && (Looks("*") || Looks("+") || Looks("?") || Looks("{")))
      return Invalid(at_, "a repetition is repeated");
    if (Lengths(atom).max == 0) return atom;
    return Repeat(std::move(atom), min, max);
  }

  std::optional<int64_t> TakeNumber() {
    const size_t begin = at_;
    int64_t number = 0;
    for (; !AtEnd() && pattern_[at_] >= '0' && pattern_[at_] <= '9'; ++at_)
      number = std::min(number * 10 + (pattern_[at_] - '0'), kMaxRepetitions + 1);
    return at_ == begin ? std::nullopt : std::optional(number);
  }

  Status ParseBounds(int64_t& min, int64_t& max) {
    const size_t begin = at_;
    at_ += 1;
    const std::optional<int64_t> low = TakeNumber();
    std::optional<int64_t> high = low;
    if (Take(",")) {
      high = TakeNumber();
      if (!high) high = Expression::kUnbounded;
    }
    if (!low || !Take("}"))
      return Invalid(begin, "`{` begins no repetition; as a character it is written `\\{`");
    if (*low > kMaxRepetitions || *high > kMaxRepetitions)
      return Invalid(begin,
                     fmt::format("a repetition of more than {} times is not supported", kMaxRepetitions));
    if (*high != Expression::kUnbounded && *high < *low)
      return Invalid(begin, "the bounds of a repetition are in the wrong order");
    min = *low;
    max = *high;
    return {};
  }

  Result<Expression> ParseAtom(int depth) {
    const size_t begin = at_;
    if (Take("(")) return ParseGroup(begin, depth);
    if (Take("[")) return ParseClass(begin);
    if (Take(".")) return OneOf(LineEnds().Complement());
    if (Take("^") || Take("$")) {
      anchor_at_ = begin;
      Expression anchor;
      anchor.kind = pattern_[begin] == '^' ? Kind::kStart : Kind::kEnd;
      return anchor;
    }
    if (Looks("*") || Looks("+") || Looks("?")) return Invalid(begin, "there is nothing to repeat");
    if (Looks("{")) return Invalid(begin, "`{` begins no repetition; as a character it is written `\\{`");
    if (Take("\\")) {
      if (AtEnd()) return Invalid(begin, "a `\\` is followed by nothing");
      const char c = pattern_[at_];
      if (auto escape = FindClassEscape(c)) {
        ++at_;
        return OneOf(std::move(escape->inner));
      }
      if (c == 'b' || c == 'B') return Unsupported(begin, "word boundaries are not supported");
      TANDEM_ASSIGN_OR_RETURN(const uint32_t escaped, ParseEscapedChar(begin));
      return CharLiteral(escaped);
    }
    TANDEM_ASSIGN_OR_RETURN(const uint32_t c, ParseChar());
    return CharLiteral(c);
  }

  static Expression CharLiteral(uint32_t c) {
    std::string text;
    AppendUtf8(c, &text);
    return Literal(std::move(text));
  }

  Result<Expression> ParseGroup(size_t begin, int depth) {
    if (Take("?")) {
      if (Take("P<") || (Looks("<") && !Looks("<=") && !Looks("<!") && Take("<"))) {
        const size_t end = pattern_.find('>', at_);
        if (end == pattern_.npos) return Invalid(begin, "the name of a group does not end");
        at_ = end + 1;
      } else if (!Take(":")) {
        return Unsupported(begin, Looks("=") || Looks("!") || Looks("<")
                                      ? "assertions that look ahead or behind are not supported"
                                      : "flags and other groups are not supported");
      }
    }
    TANDEM_ASSIGN_OR_RETURN(Expression group, ParseChoice(depth + 1));
    if (!Take(")")) return Invalid(begin, "the `(` is not closed");
    return group;
  }

  // The `[` is taken.
  Result<Expression> ParseClass(size_t begin) {
    const bool is_negated = Take("^");
    CharSet inner, outer;
    while (!Take("]")) {
      if (AtEnd()) return Invalid(begin, "the `[` is not closed");
      const size_t item = at_;
      uint32_t first = 0;
      if (Take("\\")) {
        if (AtEnd()) return Invalid(item, "a `\\` is followed by nothing");
        if (const auto escape = FindClassEscape(pattern_[at_])) {
          ++at_;
          inner.Add(escape->inner);
          outer.Add(escape->outer);
          continue;
        }
        TANDEM_ASSIGN_OR_RETURN(first, ParseEscapedChar(item, true));
      } else {
        TANDEM_ASSIGN_OR_RETURN(first, ParseChar());
      }
      uint32_t last = first;
      if (Looks("-") && pattern_.size() > at_ + 1 && pattern_[at_ + 1] != ']') {
        ++at_;
        const size_t other = at_;
        if (Take("\\")) {
          if (AtEnd() || FindClassEscape(pattern_[at_])) return Invalid(item, "a range ends with a class");
          TANDEM_ASSIGN_OR_RETURN(last, ParseEscapedChar(other, true));
        } else {
          TANDEM_ASSIGN_OR_RETURN(last, ParseChar());
        }
        if (last < first) return Invalid(item, "a range is in the wrong order");
      }
      inner.Add(first, last);
      outer.Add(first, last);
    }
    CharSet set = is_negated ? outer.Complement() : std::move(inner);
    if (set.empty()) return Invalid(begin, "a class has no character");
    return OneOf(std::move(set));
  }

  Result<uint32_t> ParseChar() {
    const size_t length = WellFormedUtf8Length(pattern_.substr(at_));
    if (length == 0) return Invalid(at_, "there is no UTF-8");
    const uint32_t c = DecodeUtf8(pattern_, at_);
    at_ += length;
    return c;
  }

  // The `\` at begin is taken, and is not the last.
  Result<uint32_t> ParseEscapedChar(size_t begin, bool in_class = false) {
    const char c = pattern_[at_++];
    switch (c) {
      case 'n':
        return uint32_t{'\n'};
      case 'r':
        return uint32_t{'\r'};
      case 't':
        return uint32_t{'\t'};
      case 'f':
        return uint32_t{'\f'};
      case 'v':
        return uint32_t{'\v'};
      case 'b':
        if (in_class) return uint32_t{'\b'};
        break;
      case '0':
        if (AtEnd() || pattern_[at_] < '0' || pattern_[at_] > '9') return uint32_t{0};
        break;
      case 'x':
        return ParseHex(begin, 2);
      case 'u': {
        if (Take("{")) {
          const size_t end = pattern_.find('}', at_);
          if (end == pattern_.npos || end - at_ > 6 || end == at_)
            return Invalid(begin, "the `\\u{` is no character");
          TANDEM_ASSIGN_OR_RETURN(const uint32_t value, ParseHex(begin, end - at_));
          ++at_;
          return value;
        }
        TANDEM_ASSIGN_OR_RETURN(const uint32_t high, ParseHex(begin, 4));
        if (high < 0xD800 || high > 0xDBFF || !Take("\\u")) return CheckScalar(begin, high);
        TANDEM_ASSIGN_OR_RETURN(const uint32_t low, ParseHex(begin, 4));
        if (low < 0xDC00 || low > 0xDFFF) return Invalid(begin, "half of a surrogate pair is missing");
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
      }
      default:
        break;
    }
    if (c >= '0' && c <= '9') return Unsupported(begin, "references to groups are not supported");
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (static_cast<unsigned char>(c) >= 0x80);
    if (is_letter) return Unsupported(begin, fmt::format("the escape `\\{}` is not supported", c));
    return static_cast<uint32_t>(c);
  }

  Result<uint32_t> CheckScalar(size_t begin, uint32_t value) const {
    if ((value >= 0xD800 && value <= 0xDFFF) || value > 0x10FFFF)
      return Invalid(begin, "an escape is no character");
    return value;
  }

  Result<uint32_t> ParseHex(size_t begin, size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = AtEnd() ? 'g' : pattern_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return Invalid(begin, "an escape wants hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (digits == 4) return value;  // may be half of a pair
    return CheckScalar(begin, value);
  }

  // False if an anchor is neither at the beginning nor at the end of all texts.
  static bool RemoveAnchors(Expression& e, bool at_start, bool at_end) {
    if (e.kind == Kind::kStart || e.kind == Kind::kEnd) {
      const bool fine = e.kind == Kind::kStart ? at_start : at_end;
      e = Literal("");
      return fine;
    }
    if (e.kind == Kind::kChoice) {
      for (Expression& option : e.children)
        if (!RemoveAnchors(option, at_start, at_end)) return false;
    } else if (e.kind == Kind::kRepeat) {
      return RemoveAnchors(e.children[0], at_start && e.max == 1, at_end && e.max == 1);
    } else if (e.kind == Kind::kSequence) {
      size_t last = e.children.size();
      // What stands before `$`s at the end ends there too.
      while (last > 0 && e.children[last - 1].kind == Kind::kEnd) --last;
      bool only_anchors = true;
      for (size_t i = 0; i < e.children.size(); ++i) {
        const bool was_start = e.children[i].kind == Kind::kStart;
        if (!RemoveAnchors(e.children[i], at_start && only_anchors, at_end && i + 1 >= last)) return false;
        only_anchors = only_anchors && was_start;
      }
    }
    return true;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  size_t anchor_at_ = 0;
};

}  // namespace

Result<Expression> ParseRegex(std::string_view pattern) {
  return RegexParser(pattern).Parse();
}

}  // namespace tandem
