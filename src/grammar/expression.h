// Expressions of a context-free grammar over characters, and grammars made of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/char_set.h"

namespace tandem {

// A value; copied with everything below it.
struct Expression {
  enum class Kind {
    kLiteral,   // literal: UTF-8, may be empty
    kSet,       // one character of set
    kRule,      // what rules()[rule] of the grammar says
    kSequence,  // children one after another
    kChoice,    // one of the children; nothing at all if there are none
    kRepeat,    // children[0], min to max times; max = kUnbounded
    kStart,     // ^ and $: only while a regular expression is parsed
    kEnd,
  };
  static constexpr int64_t kUnbounded = -1;

  Kind kind = Kind::kLiteral;
  std::string literal;
  CharSet set;
  int rule = -1;
  int64_t min = 0;
  int64_t max = 0;
  std::vector<Expression> children;
};

Expression Literal(std::string text);
Expression OneOf(CharSet set);
Expression Sequence(std::vector<Expression> parts);
Expression Choice(std::vector<Expression> options);
Expression Repeat(Expression what, int64_t min, int64_t max);
inline Expression Optional(Expression what) {
  return Repeat(std::move(what), 0, 1);
}

// How many characters the texts have; max = kUnbounded. expression: without rules.
struct LengthRange {
  int64_t min;
  int64_t max;
};
LengthRange Lengths(const Expression& expression);

// Grows with the time that compiling takes: by 1 with a character of a text, by up to 212 with a character
// out of many, each as often as repetitions make of it. Saturates.
int64_t CompileCost(const Expression& expression);

// Of a whole grammar: 5 to 20 seconds with 50,000 tokens on one slow core.
inline constexpr int64_t kMaxCompileCost = 40'000;

class ExpressionGrammar {
 public:
  // A rule that is given its body later, so that it may name itself.
  Expression Declare(std::string name);
  void Define(const Expression& rule, Expression body);
  // Both at once.
  Expression Rule(std::string name, Expression body);

  // What leads to no text at all is taken out of the choices that have it. False if `root` has none then.
  bool Prune(const Expression& root);
  // In xgrammar's notation, the rule `root` first; only what root reaches.
  std::string Print(const Expression& root) const;
  int64_t compile_cost() const;

 private:
  struct NamedRule {
    std::string name;
    Expression body;
    bool is_productive = false;
  };
  bool IsProductive(const Expression& expression) const;
  void PruneExpression(Expression& expression) const;
  int64_t CostOfAll(const Expression& root, int64_t counted_from) const;

  std::vector<NamedRule> rules_;
};

// Of an expression without rules: a grammar of it alone.
std::string PrintGrammar(const Expression& expression);

}  // namespace tandem
