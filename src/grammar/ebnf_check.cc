#include "grammar/ebnf_check.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "grammar/expression.h"

namespace tandem {
namespace {

constexpr size_t kMaxBrackets = 50;
constexpr int64_t kMaxTimes = 10'000;
// As Expression's costs, which are not known exactly here.
constexpr int64_t kClassCost = 60;
constexpr int64_t kWrittenOutTimes = 256;

bool IsNameChar(char c) {
  return c == '_' || c == '-' || c == '.' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9');
}

class EbnfScanner {
 public:
  explicit EbnfScanner(std::string_view text) : text_(text) {}

  Status Scan() {
    if (!IsValidUtf8(text_) || text_.find('\0') != text_.npos)
      return MakeError(ErrorCode::kInvalidArgument, "the grammar is no UTF-8 text without NULs");
    while (at_ < text_.size()) TANDEM_RETURN_IF_ERROR(ScanOne());
    Group all;
    for (const Group& group : groups_) all.cost += group.cost + group.last;
    if (all.cost > kMaxCompileCost)
      return MakeError(ErrorCode::kInvalidArgument,
                       "the grammar is too large: it would take too long to compile");
    return {};
  }

 private:
  // What stands between two brackets.
  struct Group {
    int64_t cost = 0;
    int64_t last = 0;  // of it the last part, which may be repeated
  };

  Error At(size_t place, std::string_view what, ErrorCode code = ErrorCode::kInvalidArgument) const {
    const std::string_view before = text_.substr(0, place);
    const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 = 0
    return MakeError(code, "line {}, column {} of the grammar: {}", 1 + std::ranges::count(before, '\n'),
                     1 + place - line_begin, what);
  }

  void AddPart(int64_t cost) {
    groups_.back().cost = std::min<int64_t>(groups_.back().cost + groups_.back().last, kMaxCompileCost * 2);
    groups_.back().last = cost;
  }

  Status ScanOne() {
    const size_t begin = at_;
    const char c = text_[at_++];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '"') {
      SkipTo('"');
      AddPart(static_cast<int64_t>(at_ - begin));
    } else if (c == '[') {
      SkipTo(']');
      AddPart(kClassCost);
    } else if (c == '(') {
      if (groups_.size() > kMaxBrackets) return At(begin, "brackets are nested too deep");
      groups_.emplace_back();
    } else if (c == ')' && groups_.size() > 1) {
      const int64_t cost = groups_.back().cost + groups_.back().last + 1;
      groups_.pop_back();
      AddPart(cost);
    } else if (c == '{') {
      return ScanBounds(begin);
    } else if (IsNameChar(c)) {
      return ScanName(begin);
    }
    return {};
  }

  void SkipTo(char end) {
    for (; at_ < text_.size() && text_[at_] != end; ++at_)
      if (text_[at_] == '\\') ++at_;
    at_ = std::min(at_ + 1, text_.size());
  }

  Status ScanBounds(size_t begin) {
    const size_t end = std::min(text_.find('}', at_), text_.size());
    int64_t times = 0, number = 0;
    for (; at_ < end; ++at_) {
      const char c = text_[at_];
      number = c >= '0' && c <= '9' ? std::min(number * 10 + (c - '0'), kMaxTimes + 1) : 0;
      times = std::max(times, number);
    }
    if (times > kMaxTimes)
      return At(begin, fmt::format("a repetition of more than {} times is not supported", kMaxTimes));
    Group& group = groups_.back();
    group.last = std::min(group.last * std::min(times + 1, kWrittenOutTimes), kMaxCompileCost * 2);
    return {};
  }

  Status ScanName(size_t begin) {
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    if (IsCall(text_.substr(begin, at_ - begin)))
      return At(begin, fmt::format("`{}(...)` is not supported", text_.substr(begin, at_ - begin)),
                ErrorCode::kUnsupported);
    if (at_ < text_.size() && text_[at_] == '[') {
      const size_t end = std::min(text_.find_first_of("]\n", at_), text_.size());
      const size_t next =
          std::min(text_.find_first_not_of(" \t", std::min(end + 1, text_.size())), text_.size());
      if (text_.substr(next).starts_with("::="))
        return At(begin, "attributes of rules are not supported", ErrorCode::kUnsupported);
    }
    AddPart(1);
    return {};
  }

  static bool IsCall(std::string_view name) {
    constexpr std::string_view calls[] = {"TagDispatch",      "Token", "ExcludeToken",
                                          "TokenTagDispatch", "Regex", "Substring"};
    return std::ranges::find(calls, name) != std::end(calls);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Group> groups_ = {{}};
};

}  // namespace

Status CheckEbnf(std::string_view grammar) {
  return EbnfScanner(grammar).Scan();
}

}  // namespace tandem
