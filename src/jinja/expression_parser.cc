#include "jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "jinja/error.h"

namespace tandem::jinja {
namespace {

std::optional<CompareOp> CompareOpOf(const Token& token) {
  constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps = {{{"==", CompareOp::kEq},
                                                                           {"!=", CompareOp::kNe},
                                                                           {"<", CompareOp::kLt},
                                                                           {"<=", CompareOp::kLe},
                                                                           {">", CompareOp::kGt},
                                                                           {">=", CompareOp::kGe}}};
  for (const auto& [symbol, op] : kOps) {
    if (token.IsOperator(symbol)) return op;
  }
  return std::nullopt;
}

bool IsConstantName(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

ExpressionParser::NestingGuard::NestingGuard(ExpressionParser& parser) : parser_(parser) {
  if (parser_.nesting_ >= kMaxNesting) parser_.Fail("nested too deeply");
  ++parser_.nesting_;
}

void ExpressionParser::Fail(const std::string& message) const {
  throw TemplateError(message, Current().line);
}

std::string ExpressionParser::DescribeCurrent() const {
  switch (Current().type) {
    case TokenType::kEnd:
      return "end of template";
    case TokenType::kData:
      return "template data";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kInteger:
      return fmt::format("'{}'", Current().integer);
    case TokenType::kFloat:
      return fmt::format("'{}'", Current().real);
    default:
      return fmt::format("'{}'", Current().text.substr(0, 80));
  }
}

void ExpressionParser::FailUnexpected() const {
  Fail("unexpected " + DescribeCurrent());
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Advance();
  return true;
}

bool ExpressionParser::SkipOperator(std::string_view symbol) {
  if (!Current().IsOperator(symbol)) return false;
  Advance();
  return true;
}

void ExpressionParser::ExpectOperator(std::string_view symbol) {
  if (!SkipOperator(symbol)) Fail(fmt::format("expected '{}', got {}", symbol, DescribeCurrent()));
}

void ExpressionParser::ExpectName(std::string_view name) {
  if (!SkipName(name)) Fail(fmt::format("expected '{}', got {}", name, DescribeCurrent()));
}

std::string ExpressionParser::TakeName() {
  if (Current().type != TokenType::kName) Fail("expected a name, got " + DescribeCurrent());
  std::string name = Current().text;
  Advance();
  return name;
}

ExprPtr ExpressionParser::NewExpr(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr ExpressionParser::Finish(ExprPtr expr) const {
  int depth = 0;
  const auto include = [&depth](const ExprPtr& child) {
    if (child) depth = std::max(depth, child->depth);
  };
  for (const ExprPtr& child : expr->children) include(child);
  for (const ExprPtr& child : expr->arguments.positional) include(child);
  for (const auto& [name, child] : expr->arguments.named) include(child);
  include(expr->arguments.more_positional);
  include(expr->arguments.more_named);
  expr->depth = depth + 1;
  if (expr->depth > kMaxExpressionDepth) throw TemplateError("expression nested too deeply", expr->line);
  return expr;
}

ExprPtr ExpressionParser::Pair(ExprKind kind, int line, ExprPtr left, ExprPtr right) const {
  ExprPtr expr = NewExpr(kind, line);
  expr->children.push_back(std::move(left));
  expr->children.push_back(std::move(right));
  return Finish(std::move(expr));
}

ExprPtr ExpressionParser::ParseExpression(bool with_conditional) {
  return with_conditional ? ParseConditional() : ParseOr();
}

ExprPtr ExpressionParser::ParseConditional() {
  const NestingGuard guard(*this);
  int line = Current().line;
  const size_t num_unknown = unknown_names_.size();
  ExprPtr expr = ParseOr();
  while (SkipName("if")) {
    ExprPtr condition = ParseOr();
    ExprPtr otherwise = SkipName("else") ? ParseConditional() : nullptr;
    unknown_names_.erase(unknown_names_.begin() + static_cast<ptrdiff_t>(num_unknown), unknown_names_.end());
    ExprPtr conditional = NewExpr(ExprKind::kConditional, line);
    conditional->children.push_back(std::move(condition));
    conditional->children.push_back(std::move(expr));
    conditional->children.push_back(std::move(otherwise));
    expr = Finish(std::move(conditional));
    line = Current().line;
  }
  return expr;
}

ExprPtr ExpressionParser::ParseOr() {
  int line = Current().line;
  ExprPtr left = ParseAnd();
  while (SkipName("or")) {
    left = Pair(ExprKind::kOr, line, std::move(left), ParseAnd());
    line = Current().line;
  }
  return left;
}

ExprPtr ExpressionParser::ParseAnd() {
  int line = Current().line;
  ExprPtr left = ParseNot();
  while (SkipName("and")) {
    left = Pair(ExprKind::kAnd, line, std::move(left), ParseNot());
    line = Current().line;
  }
  return left;
}

ExprPtr ExpressionParser::ParseNot() {
  if (!Current().IsName("not")) return ParseCompare();
  const NestingGuard guard(*this);
  ExprPtr expr = NewExpr(ExprKind::kNot, Current().line);
  Advance();
  expr->children.push_back(ParseNot());
  return Finish(std::move(expr));
}

ExprPtr ExpressionParser::ParseCompare() {
  ExprPtr compare = NewExpr(ExprKind::kCompare, Current().line);
  compare->children.push_back(ParseSum());
  while (true) {
    if (const std::optional<CompareOp> op = CompareOpOf(Current())) {
      Advance();
      compare->compares.push_back(*op);
    } else if (SkipName("in")) {
      compare->compares.push_back(CompareOp::kIn);
    } else if (Current().IsName("not") && LookAhead().IsName("in")) {
      Advance();
      Advance();
      compare->compares.push_back(CompareOp::kNotIn);
    } else {
      break;
    }
    compare->children.push_back(ParseSum());
  }
  if (compare->compares.empty()) return std::move(compare->children[0]);
  return Finish(std::move(compare));
}

ExprPtr ExpressionParser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (Current().IsOperator("+") || Current().IsOperator("-")) {
    const BinaryOp op = Current().text == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
    const int line = Current().line;
    Advance();
    left = Pair(ExprKind::kBinary, line, std::move(left), ParseConcat());
    left->op = op;
  }
  return left;
}

ExprPtr ExpressionParser::ParseConcat() {
  ExprPtr concat = NewExpr(ExprKind::kConcat, Current().line);
  concat->children.push_back(ParseProduct());
  while (SkipOperator("~")) concat->children.push_back(ParseProduct());
  if (concat->children.size() == 1) return std::move(concat->children[0]);
  return Finish(std::move(concat));
}

ExprPtr ExpressionParser::ParseProduct() {
  ExprPtr left = ParsePower();
  while (true) {
    BinaryOp op = BinaryOp::kMul;
    if (Current().IsOperator("/")) {
      op = BinaryOp::kDiv;
    } else if (Current().IsOperator("//")) {
      op = BinaryOp::kFloorDiv;
    } else if (Current().IsOperator("%")) {
      op = BinaryOp::kMod;
    } else if (!Current().IsOperator("*")) {
      return left;
    }
    const int line = Current().line;
    Advance();
    left = Pair(ExprKind::kBinary, line, std::move(left), ParsePower());
    left->op = op;
  }
}

ExprPtr ExpressionParser::ParsePower() {
  ExprPtr left = ParseUnary(true);
  while (Current().IsOperator("**")) {
    const int line = Current().line;
    Advance();
    left = Pair(ExprKind::kBinary, line, std::move(left), ParseUnary(true));
    left->op = BinaryOp::kPow;
  }
  return left;
}

ExprPtr ExpressionParser::ParseUnary(bool with_filter) {
  ExprPtr expr;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    const NestingGuard guard(*this);
    expr = NewExpr(Current().text == "-" ? ExprKind::kNegate : ExprKind::kPlus, Current().line);
    Advance();
    expr->children.push_back(ParseUnary(false));
    expr = Finish(std::move(expr));
  } else {
    expr = ParsePrimary(false);
  }
  expr = ParsePostfix(std::move(expr));
  return with_filter ? ParseFilterExpr(std::move(expr)) : std::move(expr);
}

void ExpressionParser::NoteName(const std::string& name) {
  for (Signature* macro : open_macros_) {
    macro->takes_varargs |= name == "varargs";
    macro->takes_kwargs |= name == "kwargs";
    macro->takes_caller |= name == "caller";
  }
}

ExprPtr ExpressionParser::ParseNameExpr(bool with_namespace) {
  ExprPtr expr = NewExpr(ExprKind::kLiteral, Current().line);
  const std::string name = TakeName();
  if (IsConstantName(name)) {
    const char first = static_cast<char>(name[0] | 0x20);
    expr->literal = first == 'n' ? Value::None() : Value::Bool(first == 't');
    return expr;
  }
  expr->name = name;
  if (with_namespace && SkipOperator(".")) {
    expr->kind = ExprKind::kNamespaceRef;
    expr->attribute = TakeName();
    return expr;
  }
  expr->kind = ExprKind::kName;
  NoteName(name);
  return expr;
}

ExprPtr ExpressionParser::ParsePrimary(bool with_namespace) {
  const Token& token = Current();
  ExprPtr expr = NewExpr(ExprKind::kLiteral, token.line);
  switch (token.type) {
    case TokenType::kName:
      return ParseNameExpr(with_namespace);
    case TokenType::kString: {
      std::string text;
      for (; Current().type == TokenType::kString; Advance()) text += Current().text;
      expr->literal = Value::String(std::move(text));
      return expr;
    }
    case TokenType::kInteger:
      expr->literal = Value::Int(token.integer);
      Advance();
      return expr;
    case TokenType::kFloat:
      expr->literal = Value::Float(token.real);
      Advance();
      return expr;
    default:
      break;
  }
  if (SkipOperator("(")) {
    const NestingGuard guard(*this);
    expr = ParseTuple({.explicit_parentheses = true});
    ExpectOperator(")");
    return expr;
  }
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  FailUnexpected();
}

bool ExpressionParser::AtTupleEnd(const TupleOptions& options) const {
  return Current().type == TokenType::kVariableEnd || Current().type == TokenType::kBlockEnd ||
         Current().IsOperator(")") || (!options.end_name.empty() && Current().IsName(options.end_name));
}

ExprPtr ExpressionParser::ParseTuple(const TupleOptions& options) {
  ExprPtr tuple = NewExpr(ExprKind::kTuple, Current().line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->children.empty()) ExpectOperator(",");
    if (AtTupleEnd(options)) break;
    tuple->children.push_back(options.targets_only ? ParsePrimary(options.with_namespace)
                                                   : ParseExpression(options.with_conditional));
    if (!Current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return Finish(std::move(tuple));
  if (!tuple->children.empty()) return std::move(tuple->children[0]);
  if (!options.explicit_parentheses) Fail("Expected an expression, got " + DescribeCurrent());
  return Finish(std::move(tuple));
}

}  // namespace tandem::jinja
