// The statements of the interpreter.
#include <fmt/format.h>

#include "jinja/error.h"
#include "jinja/filters.h"
#include "jinja/interpreter.h"
#include "jinja/loop.h"
#include "jinja/print.h"

namespace tandem::jinja {
namespace {

// Sends the output into text, and back to where it went before at the end.
class OutputGuard {
 public:
  OutputGuard(SourcedText*& output, SourcedText& text) : output_(output), previous_(output) {
    output = &text;
  }
  OutputGuard(const OutputGuard&) = delete;
  OutputGuard& operator=(const OutputGuard&) = delete;
  ~OutputGuard() { output_ = previous_; }

 private:
  SourcedText*& output_;
  SourcedText* previous_;
};

}  // namespace

void Interpreter::CheckOutput(size_t more_bytes) const {
  if (output_->size() + more_bytes > kMaxOutputBytes) {
    throw TemplateError(fmt::format("output longer than {} bytes", kMaxOutputBytes));
  }
}

void Interpreter::Write(std::string_view text) {
  CheckOutput(text.size());
  output_->Append(text, Source::kTemplate);
}

void Interpreter::Write(const SourcedText& text) {
  CheckOutput(text.size());
  output_->Append(text);
}

void Interpreter::WriteText(const Value& value) {
  if (!value.is_string()) {
    throw TemplateError(fmt::format("expected text as the block's output, got {}", TypeName(value)));
  }
  Write(value.sourced_text());
}

Interpreter::Flow Interpreter::Execute(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = ExecuteStatement(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteStatement(const Statement& statement) {
  const DepthGuard guard(*this);
  try {
    return ExecuteKind(statement);
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = statement.line;
    throw;
  }
}

Interpreter::Flow Interpreter::ExecuteKind(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::kText:
      Write(statement.text);
      return Flow::kNext;
    case StatementKind::kOutput:
      for (const ExprPtr& expr : statement.expressions) {
        const Value value = Evaluate(*expr);
        if (value.is_string()) {
          Write(value.sourced_text());
        } else {
          Write(ToStr(runtime_, value));
        }
      }
      return Flow::kNext;
    case StatementKind::kIf:
      return ExecuteIf(statement);
    case StatementKind::kFor:
      return ExecuteFor(statement);
    case StatementKind::kSet:
      Assign(*statement.targets[0], Evaluate(*statement.expressions[0]));
      return Flow::kNext;
    case StatementKind::kSetBlock:
      return ExecuteSetBlock(statement);
    case StatementKind::kMacro:
      scope_->Set(statement.signature.name, MakeMacro(statement));
      return Flow::kNext;
    case StatementKind::kCallBlock:
      ExecuteCallBlock(statement);
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      return ExecuteFilterBlock(statement);
    case StatementKind::kWith:
      return ExecuteWith(statement);
    case StatementKind::kScope: {
      const ScopeGuard scope(*this);
      return Execute(statement.body);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteIf(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (!branch.condition || IsTruthy(Evaluate(*branch.condition))) return Execute(branch.body);
  }
  return Flow::kNext;
}

std::vector<Value> Interpreter::FilterLoopItems(const Statement& statement, std::vector<Value> items) {
  if (!statement.condition) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    runtime_.ChargeSteps(1);
    const ScopeGuard scope(*this);
    Assign(*statement.targets[0], item);
    if (IsTruthy(Evaluate(*statement.condition))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::ExecuteFor(const Statement& statement) {
  return RunLoop(statement, runtime_.Iterate(Evaluate(*statement.expressions[0])), 0);
}

Interpreter::Flow Interpreter::RunLoop(const Statement& statement, std::vector<Value> items,
                                       int64_t loop_depth) {
  items = FilterLoopItems(statement, std::move(items));
  const auto loop = std::make_shared<LoopData>(std::move(items), loop_depth);
  struct LoopGuard {
    explicit LoopGuard(LoopData& data) : loop(data) {}
    LoopGuard(const LoopGuard&) = delete;
    LoopGuard& operator=(const LoopGuard&) = delete;
    ~LoopGuard() { loop.Release(); }
    LoopData& loop;
  } const guard(*loop);
  if (statement.recursive) {
    loop->recurse = [this, &statement, loop_depth, outer = scope_](Runtime& runtime,
                                                                   const Arguments& arguments) {
      if (arguments.positional.size() != 1) throw TemplateError("loop() takes one iterable");
      const DepthGuard depth(*this);
      const ScopeGuard scope(*this, outer);
      SourcedText text;
      const OutputGuard output(output_, text);
      RunLoop(statement, runtime.Iterate(arguments.positional[0]), loop_depth + 1);
      return runtime.NewString(std::move(text));
    };
  }
  const Value loop_value = Value::Heap(Kind::kObject, loop);
  // As in jinja2, the else body also runs if every iteration was cut short by break or continue.
  bool reached_end = false;
  for (; loop->index < loop->length; ++loop->index) {
    runtime_.ChargeSteps(1);
    const ScopeGuard scope(*this);
    scope_->Set("loop", loop_value);
    Assign(*statement.targets[0], loop->items[static_cast<size_t>(loop->index)]);
    const Flow flow = Execute(statement.body);
    reached_end |= flow == Flow::kNext;
    if (flow == Flow::kBreak) break;
  }
  if (reached_end) return Flow::kNext;
  const ScopeGuard scope(*this);
  return Execute(statement.else_body);
}

Interpreter::Flow Interpreter::ExecuteWith(const Statement& statement) {
  const std::vector<Value> values = EvaluateAll(statement.expressions);
  const ScopeGuard scope(*this);
  for (size_t i = 0; i < values.size(); ++i) Assign(*statement.targets[i], values[i]);
  return Execute(statement.body);
}

SourcedText Interpreter::Capture(const Body& body, Flow& flow) {
  SourcedText text;
  {
    const ScopeGuard scope(*this);
    const OutputGuard output(output_, text);
    flow = Execute(body);
  }
  runtime_.ChargeString(text.size());
  return text;
}

Interpreter::Flow Interpreter::ExecuteFilterBlock(const Statement& statement) {
  Flow flow = Flow::kNext;
  const Value text = Value::String(Capture(statement.body, flow));
  if (flow != Flow::kNext) return flow;  // the text goes with the iteration
  WriteText(ApplyFilters(*statement.filter, text));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteSetBlock(const Statement& statement) {
  Flow flow = Flow::kNext;
  const Value text = Value::String(Capture(statement.body, flow));
  if (flow != Flow::kNext) return flow;
  Assign(*statement.targets[0], statement.filter ? ApplyFilters(*statement.filter, text) : text);
  return Flow::kNext;
}

void Interpreter::ExecuteCallBlock(const Statement& statement) {
  const Expr& call = *statement.expressions[0];
  const Value caller = MakeMacro(statement);
  const Value callee = Evaluate(*call.children[0]);
  Arguments arguments = EvaluateArguments(call.arguments, nullptr);
  arguments.named.emplace_back("caller", caller);
  WriteText(runtime_.Call(callee, arguments));
}

void Interpreter::Assign(const Expr& target, const Value& value) {
  switch (target.kind) {
    case ExprKind::kName:
      scope_->Set(target.name, value);
      return;
    case ExprKind::kNamespaceRef: {
      const Value* found = scope_->Find(target.name);
      if (found == nullptr || !found->is(Kind::kNamespace)) {
        throw TemplateError("cannot assign attribute on non-namespace object");
      }
      found->ns().attributes.Set(target.attribute, value);
      return;
    }
    case ExprKind::kTuple: {
      const std::vector<Value> parts = runtime_.Iterate(value);
      if (parts.size() != target.children.size()) {
        throw TemplateError(
            fmt::format("cannot unpack {} values into {} names", parts.size(), target.children.size()));
      }
      for (size_t i = 0; i < parts.size(); ++i) Assign(*target.children[i], parts[i]);
      return;
    }
    default:
      throw TemplateError("cannot assign to this expression");
  }
}

}  // namespace tandem::jinja
