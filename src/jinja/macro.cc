// Macros: definition, the binding of arguments, and the caller() of call blocks.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/error.h"
#include "jinja/interpreter.h"

namespace tandem::jinja {

Value Interpreter::MakeMacro(const Statement& statement) {
  // The macro lies in the scope that it holds: the runtime breaks that cycle at the end.
  runtime_.Keep(scope_, [](void* scope) { static_cast<Scope*>(scope)->Clear(); });
  const auto call = [this, macro = &statement, scope = scope_](Runtime& /*runtime*/,
                                                               const Arguments& arguments) {
    return CallMacro(*macro, scope, arguments);
  };
  auto data = std::make_shared<FunctionData>();
  data->depth = 1;
  data->name = fmt::format("<Macro '{}'>", statement.signature.name);
  data->call = call;
  std::vector<Value> parameters;
  for (const std::string& name : statement.signature.parameters) parameters.push_back(Value::String(name));
  data->attributes.Set("name", Value::String(statement.signature.name));
  data->attributes.Set("arguments", Value::Tuple(std::move(parameters)));
  return Value::Heap(Kind::kFunction, std::move(data));
}

Value Interpreter::CallMacro(const Statement& macro, const std::shared_ptr<Scope>& scope,
                             const Arguments& arguments) {
  const DepthGuard depth(*this);
  const ScopeGuard macro_scope(*this, scope);
  BindMacroArguments(macro.signature, arguments);
  Flow flow = Flow::kNext;
  return Value::String(Capture(macro.body, flow));
}

void Interpreter::BindMacroArguments(const Signature& signature, const Arguments& arguments) {
  const size_t num_parameters = signature.parameters.size();
  std::vector<const Value*> values(num_parameters, nullptr);
  std::vector<Value> more_positional;
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < num_parameters) {
      values[i] = &arguments.positional[i];
    } else {
      more_positional.push_back(arguments.positional[i]);
    }
  }
  if (!more_positional.empty() && !signature.takes_varargs) {
    throw TemplateError(
        fmt::format("macro '{}' takes not more than {} argument(s)", signature.name, num_parameters));
  }
  auto more_named = std::make_shared<DictData>();
  std::optional<Value> caller;
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(signature.parameters.begin(), signature.parameters.end(), name);
    if (found != signature.parameters.end()) {
      const Value*& slot = values[static_cast<size_t>(found - signature.parameters.begin())];
      // A parameter that is also given by position leaves the named one over.
      if (slot == nullptr) {
        slot = &value;
        continue;
      }
    }
    if (name == "caller" && signature.takes_caller) {
      caller = value;
    } else if (signature.takes_kwargs) {
      more_named->Set(Value::String(SourcedText(name, arguments.source_of_names)), value);
    } else {
      throw TemplateError(fmt::format("macro '{}' takes no keyword argument '{}'", signature.name, name));
    }
  }
  if (signature.takes_caller) {
    scope_->Set("caller", caller.value_or(Value::Undefined("No caller defined")));
  }
  if (signature.takes_varargs) scope_->Set("varargs", Value::Tuple(std::move(more_positional)));
  if (signature.takes_kwargs) scope_->Set("kwargs", Value::Dict(std::move(more_named)));
  const size_t first_default = num_parameters - signature.defaults.size();
  for (size_t i = 0; i < num_parameters; ++i) {
    const std::string& name = signature.parameters[i];
    if (values[i] != nullptr) {
      scope_->Set(name, *values[i]);
    } else if (i >= first_default) {
      scope_->Set(name, Evaluate(*signature.defaults[i - first_default]));
    } else {
      scope_->Set(name, Value::Undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
}

}  // namespace tandem::jinja
