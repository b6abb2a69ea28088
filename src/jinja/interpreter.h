// Runs a parsed template. One Interpreter renders once, on one thread; the tree is shared and stays as it is.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/runtime.h"
#include "jinja/scope.h"

namespace tandem::jinja {

class Interpreter {
 public:
  explicit Interpreter(const std::vector<std::pair<std::string, Value>>& variables);

  // Throws TemplateError with the line.
  SourcedText Render(const Body& body);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class DepthGuard;
  class ScopeGuard;

  // interpreter.cc: expressions.
  Value Evaluate(const Expr& expr);
  Value EvaluateKind(const Expr& expr);
  Value EvaluateName(const Expr& expr);
  Value EvaluateDict(const Expr& expr);
  Value EvaluateConcat(const Expr& expr);
  Value EvaluateSlice(const Expr& expr);
  Value EvaluateConditional(const Expr& expr);
  bool EvaluateCompare(const Expr& expr);
  bool Relate(CompareOp op, const Value& left, const Value& right);
  std::vector<Value> EvaluateAll(const std::vector<ExprPtr>& exprs);
  // operand comes first, if there is one.
  Arguments EvaluateArguments(const CallArguments& arguments, const Value* operand);
  // Applies a filter block's filters to text.
  Value ApplyFilters(const Expr& filter, const Value& text);

  // statements.cc.
  Flow Execute(const Body& body);
  Flow ExecuteStatement(const Statement& statement);
  Flow ExecuteKind(const Statement& statement);
  Flow ExecuteIf(const Statement& statement);
  Flow ExecuteFor(const Statement& statement);
  Flow RunLoop(const Statement& statement, std::vector<Value> items, int64_t loop_depth);
  Flow ExecuteWith(const Statement& statement);
  Flow ExecuteFilterBlock(const Statement& statement);
  Flow ExecuteSetBlock(const Statement& statement);
  void ExecuteCallBlock(const Statement& statement);
  std::vector<Value> FilterLoopItems(const Statement& statement, std::vector<Value> items);
  void Assign(const Expr& target, const Value& value);
  void Write(std::string_view text);  // the template's
  void Write(const SourcedText& text);
  void CheckOutput(size_t more_bytes) const;
  // The output of a filter or call block, which jinja2 does not convert to text.
  void WriteText(const Value& value);
  // The output of body in a scope inside the current one; flow says how it ended.
  SourcedText Capture(const Body& body, Flow& flow);

  // macro.cc.
  Value MakeMacro(const Statement& statement);
  Value CallMacro(const Statement& macro, const std::shared_ptr<Scope>& scope, const Arguments& arguments);
  void BindMacroArguments(const Signature& signature, const Arguments& arguments);

  Runtime runtime_;
  std::shared_ptr<Scope> scope_;
  SourcedText* output_ = nullptr;
  int depth_ = 0;

  friend class DepthGuard;
};

// Bounds the native stack: expressions, statements and macros inside each other.
inline constexpr int kMaxEvaluationDepth = 600;

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter);
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  ~DepthGuard() { --interpreter_.depth_; }

 private:
  Interpreter& interpreter_;
};

// Enters a new scope inside parent, and returns to the current one at the end.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, const std::shared_ptr<Scope>& parent)
      : interpreter_(interpreter),
        previous_(std::exchange(interpreter.scope_, std::make_shared<Scope>(parent))) {}
  explicit ScopeGuard(Interpreter& interpreter) : ScopeGuard(interpreter, interpreter.scope_) {}
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  ~ScopeGuard() { interpreter_.scope_ = std::move(previous_); }

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> previous_;
};

}  // namespace tandem::jinja
