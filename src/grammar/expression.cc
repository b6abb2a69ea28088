#include "grammar/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

using Kind = Expression::Kind;

constexpr int64_t kMuch = int64_t{1} << 40;
// xgrammar counts repetitions beyond this number instead of writing them out.
constexpr int64_t kWrittenOut = 128;

// Up to a number of characters of a set: either a state for each, which costs a look at the whole vocabulary
// when it is compiled, or a rule in which xgrammar counts them, which costs such a look for each token that
// is drawn near the end. Few have states, a few more where there are not many of them.
constexpr int64_t kCountedFrom = 8, kCountedFromIfCheap = 16;
constexpr int64_t kCheap = 12'000;

int64_t SaturatingProduct(int64_t a, int64_t b) {
  return a == 0 || b == 0 ? 0 : (a > kMuch / b ? kMuch : a * b);
}

int64_t Plus(int64_t a, int64_t b) {
  return a == Expression::kUnbounded || b == Expression::kUnbounded ? Expression::kUnbounded
                                                                    : std::min(a + b, kMuch);
}

// About one for what few tokens begin with; most begin with letters, half of them with a space before.
int64_t SetCost(const CharSet& set) {
  int64_t letters = 0;
  for (const CharSet::Range& range : set.ranges())
    for (const uint32_t first : {uint32_t{'A'}, uint32_t{'a'}}) {
      const int64_t shared =
          static_cast<int64_t>(std::min<uint32_t>(range.last, first + 25)) - std::max(range.first, first) + 1;
      letters += std::max<int64_t>(shared, 0);
    }
  return 4 + letters * (set.Has(' ') ? 4 : 2);
}

int64_t CostWith(const Expression& e, int64_t counted_from) {
  switch (e.kind) {
    case Kind::kLiteral:
      return 1 + static_cast<int64_t>(e.literal.size());
    case Kind::kSet:
      return SetCost(e.set);
    case Kind::kSequence:
    case Kind::kChoice: {
      int64_t sum = 1;
      for (const Expression& child : e.children) sum = std::min(sum + CostWith(child, counted_from), kMuch);
      return sum;
    }
    case Kind::kRepeat: {
      const bool is_counted = e.children[0].kind == Kind::kSet && e.max - e.min > counted_from;
      const int64_t times = is_counted || e.max == Expression::kUnbounded ? e.min + 1 : e.max;
      return SaturatingProduct(CostWith(e.children[0], counted_from), std::min(times, 2 * kWrittenOut));
    }
    case Kind::kRule:
    case Kind::kStart:
    case Kind::kEnd:
      break;
  }
  return 1;
}

// One character of a literal or a class.
void AppendChar(std::string& text, uint32_t c) {
  const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  if (plain) {
    text += static_cast<char>(c);
  } else {
    text += c <= 0xFFFF ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
  }
}

void PrintLiteral(std::string& text, std::string_view literal) {
  text += '"';
  for (const char c : literal) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) {
      text += fmt::format("\\u{:04x}", byte);
    } else {
      text += c;
    }
  }
  text += '"';
}

void PrintSet(std::string& text, const CharSet& set) {
  text += '[';
  for (const CharSet::Range& range : set.ranges()) {
    AppendChar(text, range.first);
    if (range.last == range.first) continue;
    text += '-';
    AppendChar(text, range.last);
  }
  text += ']';
}

class Printer {
 public:
  explicit Printer(int64_t counted_from) : counted_from_(counted_from) {}

  // Rules that were printed as references.
  std::set<int> reached;

  // Those that count characters.
  const std::string& counting_rules() const { return counting_rules_; }

  void Print(std::string& text, const Expression& e) {
    switch (e.kind) {
      case Kind::kLiteral:
        return PrintLiteral(text, e.literal);
      case Kind::kSet:
        return PrintSet(text, e.set);
      case Kind::kRule:
        reached.insert(e.rule);
        text += fmt::format("r{}", e.rule);
        return;
      case Kind::kSequence:
        return PrintAll(text, e.children, " ");
      case Kind::kChoice:
        return PrintAll(text, e.children, " | ");
      case Kind::kRepeat:
        if (e.children[0].kind == Kind::kSet && e.max != Expression::kUnbounded &&
            e.max - e.min > counted_from_) {
          if (e.min > 0) {
            PrintSet(text, e.children[0].set);
            text += fmt::format("{{{},{}}} ", e.min, e.min);
          }
          text += Counted(e.children[0].set, e.max - e.min);
          return;
        }
        // A repetition of a repetition wants brackets.
        if (e.children[0].kind == Kind::kRepeat) {
          PrintAll(text, e.children, " ");
        } else {
          Print(text, e.children[0]);
        }
        if (e.max == Expression::kUnbounded) {
          text += e.min == 0 ? "*" : e.min == 1 ? "+" : fmt::format("{{{},}}", e.min);
        } else {
          text += e.min == 0 && e.max == 1 ? "?" : fmt::format("{{{},{}}}", e.min, e.max);
        }
        return;
      case Kind::kStart:
      case Kind::kEnd:
        break;
    }
    TANDEM_CHECK(false, "an anchor in a grammar");
  }

 private:
  void PrintAll(std::string& text, const std::vector<Expression>& parts, std::string_view between) {
    TANDEM_CHECK(!parts.empty(), "nothing to print");
    text += '(';
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) text += between;
      Print(text, parts[i]);
    }
    text += ')';
  }

  // At most so many characters of the set.
  std::string Counted(const CharSet& set, int64_t max) {
    std::string chars;
    PrintSet(chars, set);
    const std::string body = fmt::format("[max_chars={}] ::= {}*\n", max, chars);
    const auto [found, is_new] = counted_.try_emplace(body, fmt::format("c{}", counted_.size()));
    if (is_new) counting_rules_ += found->second + body;
    return found->second;
  }

  int64_t counted_from_;
  std::map<std::string, std::string> counted_;  // names by bodies
  std::string counting_rules_;
};

}  // namespace

Expression Literal(std::string text) {
  Expression e;
  e.literal = std::move(text);
  return e;
}

Expression OneOf(CharSet set) {
  Expression e;
  e.kind = Kind::kSet;
  e.set = std::move(set);
  return e;
}

Expression Sequence(std::vector<Expression> parts) {
  std::vector<Expression> kept;
  for (Expression& part : parts) {
    const bool joins = part.kind == Kind::kLiteral && !kept.empty() && kept.back().kind == Kind::kLiteral;
    if (joins) {
      kept.back().literal += part.literal;
    } else if (part.kind != Kind::kLiteral || !part.literal.empty()) {
      kept.push_back(std::move(part));
    }
  }
  if (kept.empty()) return Literal("");
  if (kept.size() == 1) return std::move(kept[0]);
  Expression e;
  e.kind = Kind::kSequence;
  e.children = std::move(kept);
  return e;
}

Expression Choice(std::vector<Expression> options) {
  if (options.size() == 1) return std::move(options[0]);
  Expression e;
  e.kind = Kind::kChoice;
  e.children = std::move(options);
  return e;
}

Expression Repeat(Expression what, int64_t min, int64_t max) {
  if (max == 0) return Literal("");
  if (min == 1 && max == 1) return what;
  Expression e;
  e.kind = Kind::kRepeat;
  e.min = min;
  e.max = max;
  e.children.push_back(std::move(what));
  return e;
}

LengthRange Lengths(const Expression& e) {
  switch (e.kind) {
    case Kind::kLiteral: {
      const int64_t n = std::ranges::count_if(e.literal, [](char c) { return (c & 0xC0) != 0x80; });
      return {n, n};
    }
    case Kind::kSet:
      return {1, 1};
    case Kind::kSequence: {
      LengthRange sum{0, 0};
      for (const Expression& part : e.children) {
        const LengthRange lengths = Lengths(part);
        sum = {Plus(sum.min, lengths.min), Plus(sum.max, lengths.max)};
      }
      return sum;
    }
    case Kind::kChoice: {
      LengthRange all{kMuch, 0};
      for (const Expression& option : e.children) {
        const LengthRange lengths = Lengths(option);
        all.min = std::min(all.min, lengths.min);
        const bool unbounded = all.max == Expression::kUnbounded || lengths.max == Expression::kUnbounded;
        all.max = unbounded ? Expression::kUnbounded : std::max(all.max, lengths.max);
      }
      return all;
    }
    case Kind::kRepeat: {
      const LengthRange one = Lengths(e.children[0]);
      const bool unbounded =
          one.max != 0 && (one.max == Expression::kUnbounded || e.max == Expression::kUnbounded);
      return {SaturatingProduct(one.min, e.min),
              unbounded ? Expression::kUnbounded : SaturatingProduct(one.max, e.max)};
    }
    case Kind::kRule:
    case Kind::kStart:
    case Kind::kEnd:
      break;
  }
  return {0, Expression::kUnbounded};
}

int64_t CompileCost(const Expression& e) {
  return CostWith(e, kCountedFrom);
}

Expression ExpressionGrammar::Declare(std::string name) {
  Expression e;
  e.kind = Kind::kRule;
  e.rule = static_cast<int>(rules_.size());
  rules_.push_back({std::move(name), Choice({}), false});
  return e;
}

void ExpressionGrammar::Define(const Expression& rule, Expression body) {
  rules_.at(static_cast<size_t>(rule.rule)).body = std::move(body);
}

Expression ExpressionGrammar::Rule(std::string name, Expression body) {
  Expression rule = Declare(std::move(name));
  Define(rule, std::move(body));
  return rule;
}

bool ExpressionGrammar::IsProductive(const Expression& e) const {
  switch (e.kind) {
    case Kind::kSet:
      return !e.set.empty();
    case Kind::kRule:
      return rules_[static_cast<size_t>(e.rule)].is_productive;
    case Kind::kSequence:
      return std::ranges::all_of(e.children, [&](const Expression& c) { return IsProductive(c); });
    case Kind::kChoice:
      return std::ranges::any_of(e.children, [&](const Expression& c) { return IsProductive(c); });
    case Kind::kRepeat:
      return e.min == 0 || IsProductive(e.children[0]);
    default:
      return true;
  }
}

void ExpressionGrammar::PruneExpression(Expression& e) const {
  if (e.kind == Kind::kRepeat && !IsProductive(e.children[0])) {
    e = Literal("");
    return;
  }
  if (e.kind == Kind::kChoice)
    std::erase_if(e.children, [&](const Expression& c) { return !IsProductive(c); });
  for (Expression& child : e.children) PruneExpression(child);
}

bool ExpressionGrammar::Prune(const Expression& root) {
  for (bool changed = true; changed;) {
    changed = false;
    for (NamedRule& rule : rules_)
      if (!rule.is_productive && IsProductive(rule.body)) changed = rule.is_productive = true;
  }
  if (!IsProductive(root)) return false;
  for (NamedRule& rule : rules_)
    if (rule.is_productive) PruneExpression(rule.body);
  return true;
}

std::string ExpressionGrammar::Print(const Expression& root) const {
  Printer printer(CostOfAll(root, kCountedFromIfCheap) <= kCheap ? kCountedFromIfCheap : kCountedFrom);
  std::string text = "root ::= ";
  printer.Print(text, root);
  text += '\n';
  std::set<int> printed;
  while (printed.size() < printer.reached.size()) {
    for (const int rule : std::set<int>(printer.reached)) {
      if (!printed.insert(rule).second) continue;
      text += fmt::format("r{} ::= ", rule);
      printer.Print(text, rules_[static_cast<size_t>(rule)].body);
      text += '\n';
    }
  }
  return text + printer.counting_rules();
}

int64_t ExpressionGrammar::CostOfAll(const Expression& root, int64_t counted_from) const {
  int64_t sum = CostWith(root, counted_from);
  for (const NamedRule& rule : rules_) sum = std::min(sum + CostWith(rule.body, counted_from), kMuch);
  return sum;
}

int64_t ExpressionGrammar::compile_cost() const {
  return CostOfAll(Literal(""), kCountedFrom);
}

std::string PrintGrammar(const Expression& expression) {
  return ExpressionGrammar().Print(expression);
}

}  // namespace tandem
