// What follows a primary expression (attributes, subscripts, calls, filters, tests), displays, and targets.
#include <fmt/format.h>

#include <utility>

#include "jinja/error.h"
#include "jinja/expression_parser.h"
#include "jinja/filters.h"
#include "jinja/value_tests.h"

namespace tandem::jinja {
namespace {

void CheckTarget(const Expr& target, bool with_namespace) {
  switch (target.kind) {
    case ExprKind::kName:
      return;
    case ExprKind::kNamespaceRef:
      if (with_namespace) return;
      break;
    case ExprKind::kTuple:
      for (const ExprPtr& child : target.children) CheckTarget(*child, with_namespace);
      return;
    default:
      break;
  }
  throw TemplateError("can't assign to this expression", target.line);
}

}  // namespace

ExprPtr ExpressionParser::ParseTarget(const TupleOptions& options) {
  ExprPtr target = ParseTuple(options);
  CheckTarget(*target, options.with_namespace);
  return target;
}

std::string ExpressionParser::ParseTargetName() {
  const int line = Current().line;
  const ExprPtr target = ParseNameExpr(false);
  if (target->kind != ExprKind::kName) throw TemplateError("can't assign to a constant", line);
  return target->name;
}

ExprPtr ExpressionParser::ParseList() {
  ExprPtr list = NewExpr(ExprKind::kList, Current().line);
  ExpectOperator("[");
  while (!Current().IsOperator("]")) {
    if (!list->children.empty()) ExpectOperator(",");
    if (Current().IsOperator("]")) break;
    list->children.push_back(ParseExpression());
  }
  ExpectOperator("]");
  return Finish(std::move(list));
}

ExprPtr ExpressionParser::ParseDict() {
  ExprPtr dict = NewExpr(ExprKind::kDict, Current().line);
  ExpectOperator("{");
  while (!Current().IsOperator("}")) {
    if (!dict->children.empty()) ExpectOperator(",");
    if (Current().IsOperator("}")) break;
    dict->children.push_back(ParseExpression());
    ExpectOperator(":");
    dict->children.push_back(ParseExpression());
  }
  ExpectOperator("}");
  return Finish(std::move(dict));
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr expr) {
  while (true) {
    if (Current().IsOperator(".") || Current().IsOperator("[")) {
      expr = ParseSubscript(std::move(expr));
    } else if (Current().IsOperator("(")) {
      expr = ParseCall(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::ParseFilterExpr(ExprPtr expr) {
  while (true) {
    if (Current().IsOperator("|")) {
      expr = ParseFilters(std::move(expr), false);
    } else if (Current().IsName("is")) {
      expr = ParseTest(std::move(expr));
    } else if (Current().IsOperator("(")) {
      expr = ParseCall(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr expr) {
  const int line = Current().line;
  if (SkipOperator("[")) {
    expr = ParseSubscriptBody(std::move(expr), line);
    ExpectOperator("]");
    return expr;
  }
  ExpectOperator(".");
  if (Current().type == TokenType::kName) {
    ExprPtr attribute = NewExpr(ExprKind::kAttribute, line);
    attribute->name = TakeName();
    attribute->children.push_back(std::move(expr));
    return Finish(std::move(attribute));
  }
  if (Current().type != TokenType::kInteger) Fail("expected name or number");
  ExprPtr index = NewExpr(ExprKind::kLiteral, line);
  index->literal = Value::Int(Current().integer);
  Advance();
  return Pair(ExprKind::kItem, line, std::move(expr), std::move(index));
}

ExprPtr ExpressionParser::ParseSubscriptBody(ExprPtr expr, int line) {
  const NestingGuard guard(*this);
  if (Current().IsOperator("]")) {
    return Pair(ExprKind::kItem, line, std::move(expr), NewExpr(ExprKind::kTuple, line));
  }
  ExprPtr first = Current().IsOperator(":") ? nullptr : ParseExpression();
  if (!Current().IsOperator(":")) {
    if (!Current().IsOperator(",")) return Pair(ExprKind::kItem, line, std::move(expr), std::move(first));
    ExprPtr tuple = NewExpr(ExprKind::kTuple, line);
    tuple->children.push_back(std::move(first));
    while (SkipOperator(",")) tuple->children.push_back(ParseExpression());
    return Pair(ExprKind::kItem, line, std::move(expr), Finish(std::move(tuple)));
  }
  ExprPtr slice = NewExpr(ExprKind::kSlice, line);
  slice->children.push_back(std::move(expr));
  slice->children.push_back(std::move(first));
  for (int i = 0; i < 2; ++i) {
    const bool given = SkipOperator(":") && !Current().IsOperator(":") && !Current().IsOperator("]");
    slice->children.push_back(given ? ParseExpression() : nullptr);
  }
  return Finish(std::move(slice));
}

ExprPtr ExpressionParser::ParseCall(ExprPtr callee) {
  ExprPtr call = NewExpr(ExprKind::kCall, Current().line);
  call->arguments = ParseArguments();
  call->children.push_back(std::move(callee));
  return Finish(std::move(call));
}

CallArguments ExpressionParser::ParseArguments() {
  CallArguments arguments;
  ExpectOperator("(");
  bool first = true;
  while (!Current().IsOperator(")")) {
    if (!first) {
      ExpectOperator(",");
      if (Current().IsOperator(")")) break;
    }
    first = false;
    const bool only_named = arguments.more_positional || arguments.more_named;
    bool valid = true;
    if (SkipOperator("*")) {
      valid = !only_named;
      arguments.more_positional = ParseExpression();
    } else if (SkipOperator("**")) {
      valid = !arguments.more_named;
      arguments.more_named = ParseExpression();
    } else if (Current().type == TokenType::kName && LookAhead().IsOperator("=")) {
      valid = !arguments.more_named;
      std::string name = TakeName();
      for (const auto& [other, value] : arguments.named) valid &= other != name;
      Advance();
      arguments.named.emplace_back(std::move(name), ParseExpression());
    } else {
      valid = !only_named && arguments.named.empty();
      arguments.positional.push_back(ParseExpression());
    }
    if (!valid) Fail("invalid syntax for function call expression");
  }
  ExpectOperator(")");
  return arguments;
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = TakeName();
  while (SkipOperator(".")) name.append(".").append(TakeName());
  return name;
}

ExprPtr ExpressionParser::ParseFilters(ExprPtr operand, bool first_without_pipe) {
  while (Current().IsOperator("|") || first_without_pipe) {
    if (!first_without_pipe) ExpectOperator("|");
    first_without_pipe = false;
    ExprPtr filter = NewExpr(ExprKind::kFilter, Current().line);
    filter->name = ParseDottedName();
    if (FindFilter(filter->name) == nullptr) {
      unknown_names_.push_back({fmt::format("No filter named '{}'.", filter->name), filter->line});
    }
    if (Current().IsOperator("(")) filter->arguments = ParseArguments();
    filter->children.push_back(std::move(operand));
    operand = Finish(std::move(filter));
  }
  return operand;
}

ExprPtr ExpressionParser::ParseTest(ExprPtr operand) {
  const NestingGuard guard(*this);
  const int line = Current().line;
  ExpectName("is");
  const bool negated = SkipName("not");
  ExprPtr test = NewExpr(ExprKind::kTest, line);
  test->name = ParseDottedName();
  if (FindTest(test->name) == nullptr) {
    unknown_names_.push_back({fmt::format("No test named '{}'.", test->name), line});
  }
  const Token& token = Current();
  const bool starts_argument = token.type == TokenType::kName || token.type == TokenType::kString ||
                               token.type == TokenType::kInteger || token.type == TokenType::kFloat ||
                               token.IsOperator("[") || token.IsOperator("{");
  if (token.IsOperator("(")) {
    test->arguments = ParseArguments();
  } else if (starts_argument && !token.IsName("else") && !token.IsName("or") && !token.IsName("and")) {
    if (token.IsName("is")) Fail("You cannot chain multiple tests with is");
    test->arguments.positional.push_back(ParsePostfix(ParsePrimary(false)));
  }
  test->children.push_back(std::move(operand));
  test = Finish(std::move(test));
  if (!negated) return test;
  ExprPtr negation = NewExpr(ExprKind::kNot, line);
  negation->children.push_back(std::move(test));
  return Finish(std::move(negation));
}

}  // namespace tandem::jinja
