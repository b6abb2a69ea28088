// The expression half of the parser, by recursive descent over the tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace tandem::jinja {

inline constexpr int kMaxExpressionDepth = 150;
inline constexpr int kMaxNesting = 100;  // parentheses in parentheses, blocks in blocks

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // How a list of expressions without brackets ends, and what may stand in it.
  struct TupleOptions {
    bool targets_only = false;          // names and literals only
    bool with_conditional = true;       // a if b else c
    bool with_namespace = false;        // namespace.attribute as a target
    bool explicit_parentheses = false;  // may be empty
    std::string_view end_name = {};     // a name that also ends it
  };

  ExprPtr ParseExpression(bool with_conditional = true);
  ExprPtr ParseTuple(const TupleOptions& options);
  ExprPtr ParseTarget(const TupleOptions& options);
  std::string ParseTargetName();
  // One or more filters with their arguments, applied to operand (null in a filter block).
  ExprPtr ParseFilters(ExprPtr operand, bool first_without_pipe);

  const Token& Current() const { return tokens_[at_]; }
  const Token& LookAhead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Advance() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view symbol);
  void ExpectOperator(std::string_view symbol);
  void ExpectName(std::string_view name);
  std::string TakeName();
  [[noreturn]] void Fail(const std::string& message) const;
  [[noreturn]] void FailUnexpected() const;
  std::string DescribeCurrent() const;

  ExprPtr NewExpr(ExprKind kind, int line) const;
  // Sets the depth; throws past kMaxExpressionDepth.
  ExprPtr Finish(ExprPtr expr) const;

  class NestingGuard {
   public:
    explicit NestingGuard(ExpressionParser& parser);
    NestingGuard(const NestingGuard&) = delete;
    NestingGuard& operator=(const NestingGuard&) = delete;
    ~NestingGuard() { --parser_.nesting_; }

   private:
    ExpressionParser& parser_;
  };

  // Filters and tests that do not exist, so far. Inside a conditional they only count if they are reached, so
  // the parser of the conditional drops those that its parts added.
  struct UnknownName {
    std::string message;
    int line;
  };
  std::vector<UnknownName> unknown_names_;
  // The macros that the parser is inside of.
  std::vector<Signature*> open_macros_;

 private:
  ExprPtr ParseConditional();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter);
  ExprPtr ParsePrimary(bool with_namespace);
  ExprPtr ParseNameExpr(bool with_namespace);
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr expr);
  ExprPtr ParseFilterExpr(ExprPtr expr);
  ExprPtr ParseSubscript(ExprPtr expr);
  ExprPtr ParseSubscriptBody(ExprPtr expr, int line);
  ExprPtr ParseCall(ExprPtr callee);
  ExprPtr ParseTest(ExprPtr operand);
  CallArguments ParseArguments();
  ExprPtr Pair(ExprKind kind, int line, ExprPtr left, ExprPtr right) const;
  std::string ParseDottedName();
  bool AtTupleEnd(const TupleOptions& options) const;
  void NoteName(const std::string& name);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace tandem::jinja
