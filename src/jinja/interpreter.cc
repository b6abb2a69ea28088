#include "jinja/interpreter.h"

#include <fmt/format.h>

#include "jinja/access.h"
#include "jinja/error.h"
#include "jinja/filters.h"
#include "jinja/globals.h"
#include "jinja/print.h"
#include "jinja/value_tests.h"

namespace tandem::jinja {

Interpreter::Interpreter(const std::vector<std::pair<std::string, Value>>& variables)
    : scope_(std::make_shared<Scope>(nullptr)) {
  for (const auto& [name, value] : variables) scope_->Set(name, value);
  scope_ = std::make_shared<Scope>(scope_);
}

SourcedText Interpreter::Render(const Body& body) {
  SourcedText output;
  output_ = &output;
  Execute(body);
  return output;
}

Interpreter::DepthGuard::DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) {
  if (interpreter_.depth_ >= kMaxEvaluationDepth) throw TemplateError("template nested too deeply");
  ++interpreter_.depth_;
}

Value Interpreter::Evaluate(const Expr& expr) {
  const DepthGuard guard(*this);
  try {
    return EvaluateKind(expr);
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = expr.line;
    throw;
  }
}

Value Interpreter::EvaluateKind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.literal;
    case ExprKind::kName:
    case ExprKind::kNamespaceRef:
      return EvaluateName(expr);
    case ExprKind::kList:
      return runtime_.NewList(EvaluateAll(expr.children));
    case ExprKind::kTuple:
      return Value::Tuple(EvaluateAll(expr.children));
    case ExprKind::kDict:
      return EvaluateDict(expr);
    case ExprKind::kNegate:
      return Negate(Evaluate(*expr.children[0]));
    case ExprKind::kPlus:
      return Plus(Evaluate(*expr.children[0]));
    case ExprKind::kNot:
      return Value::Bool(!IsTruthy(Evaluate(*expr.children[0])));
    case ExprKind::kAnd: {
      Value left = Evaluate(*expr.children[0]);
      return IsTruthy(left) ? Evaluate(*expr.children[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = Evaluate(*expr.children[0]);
      return IsTruthy(left) ? left : Evaluate(*expr.children[1]);
    }
    case ExprKind::kBinary: {
      const Value left = Evaluate(*expr.children[0]);
      return ApplyBinary(runtime_, expr.op, left, Evaluate(*expr.children[1]));
    }
    case ExprKind::kCompare:
      return Value::Bool(EvaluateCompare(expr));
    case ExprKind::kConcat:
      return EvaluateConcat(expr);
    case ExprKind::kConditional:
      return EvaluateConditional(expr);
    case ExprKind::kAttribute:
      return GetAttribute(runtime_, Evaluate(*expr.children[0]), expr.name);
    case ExprKind::kItem: {
      const Value object = Evaluate(*expr.children[0]);
      return GetItem(runtime_, object, Evaluate(*expr.children[1]));
    }
    case ExprKind::kSlice:
      return EvaluateSlice(expr);
    case ExprKind::kCall: {
      const Value callee = Evaluate(*expr.children[0]);
      return runtime_.Call(callee, EvaluateArguments(expr.arguments, nullptr));
    }
    case ExprKind::kFilter: {
      const Value operand = Evaluate(*expr.children[0]);
      return CallFilter(runtime_, expr.name, EvaluateArguments(expr.arguments, &operand));
    }
    case ExprKind::kTest: {
      const Value operand = Evaluate(*expr.children[0]);
      return Value::Bool(CallTest(runtime_, expr.name, EvaluateArguments(expr.arguments, &operand)));
    }
  }
  return Value();
}

Value Interpreter::EvaluateName(const Expr& expr) {
  if (const Value* found = scope_->Find(expr.name)) return *found;
  if (std::optional<Value> global = FindGlobal(expr.name)) return *global;
  return Value::Undefined(fmt::format("'{}' is undefined", expr.name));
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(Evaluate(*expr));
  return values;
}

Value Interpreter::EvaluateDict(const Expr& expr) {
  auto dict = std::make_shared<DictData>();
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    const Value key = Evaluate(*expr.children[i]);
    dict->Set(key, Evaluate(*expr.children[i + 1]));
  }
  runtime_.ChargeSteps(static_cast<int64_t>(dict->entries.size()));
  return Value::Dict(std::move(dict));
}

Value Interpreter::EvaluateConcat(const Expr& expr) {
  SourcedText text;
  for (const Value& part : EvaluateAll(expr.children)) {
    if (part.is_string()) {
      text.Append(part.sourced_text());
    } else {
      text.Append(ToStr(runtime_, part));
    }
    if (text.size() > kMaxOutputBytes) break;
  }
  return runtime_.NewString(std::move(text));
}

Value Interpreter::EvaluateSlice(const Expr& expr) {
  const Value object = Evaluate(*expr.children[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    bounds[i] = expr.children[i + 1] ? Evaluate(*expr.children[i + 1]) : Value::None();
  }
  return GetSlice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::EvaluateConditional(const Expr& expr) {
  if (IsTruthy(Evaluate(*expr.children[0]))) return Evaluate(*expr.children[1]);
  if (expr.children[2]) return Evaluate(*expr.children[2]);
  return Value::Undefined("the inline if-expression evaluated to false and no else section was defined.");
}

bool Interpreter::EvaluateCompare(const Expr& expr) {
  Value left = Evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.compares.size(); ++i) {
    Value right = Evaluate(*expr.children[i + 1]);
    if (!Relate(expr.compares[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

bool Interpreter::Relate(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEq:
      return Equal(runtime_, left, right);
    case CompareOp::kNe:
      return !Equal(runtime_, left, right);
    case CompareOp::kLt:
      return Less(runtime_, left, right);
    case CompareOp::kLe:
      return LessEqual(runtime_, left, right);
    case CompareOp::kGt:
      return Less(runtime_, right, left);
    case CompareOp::kGe:
      return LessEqual(runtime_, right, left);
    case CompareOp::kIn:
      return Contains(runtime_, right, left);
    case CompareOp::kNotIn:
      return !Contains(runtime_, right, left);
  }
  return false;
}

Arguments Interpreter::EvaluateArguments(const CallArguments& arguments, const Value* operand) {
  Arguments values;
  if (operand != nullptr) values.positional.push_back(*operand);
  for (const ExprPtr& expr : arguments.positional) values.positional.push_back(Evaluate(*expr));
  for (const auto& [name, expr] : arguments.named) values.named.emplace_back(name, Evaluate(*expr));
  if (arguments.more_positional) {
    for (Value& value : runtime_.Iterate(Evaluate(*arguments.more_positional))) {
      values.positional.push_back(std::move(value));
    }
  }
  if (arguments.more_named) {
    const Value more = Evaluate(*arguments.more_named);
    if (!more.is(Kind::kDict)) throw TemplateError("argument after ** must be a mapping");
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is_string()) throw TemplateError("keywords must be strings");
      for (const auto& [name, other] : values.named) {
        if (name == key.text()) {
          throw TemplateError(fmt::format("got multiple values for keyword argument '{}'", name));
        }
      }
      if (key.source() == Source::kContent) values.source_of_names = Source::kContent;
      values.named.emplace_back(key.text(), value);
    }
  }
  return values;
}

Value Interpreter::ApplyFilters(const Expr& filter, const Value& text) {
  const DepthGuard guard(*this);
  const Value operand = filter.children[0] ? ApplyFilters(*filter.children[0], text) : text;
  return CallFilter(runtime_, filter.name, EvaluateArguments(filter.arguments, &operand));
}

}  // namespace tandem::jinja
