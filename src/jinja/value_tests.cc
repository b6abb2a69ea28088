#include "jinja/value_tests.h"

#include <fmt/format.h>

#include <unordered_map>

#include "jinja/arguments.h"
#include "jinja/error.h"
#include "jinja/filters.h"
#include "jinja/methods.h"
#include "jinja/operators.h"
#include "jinja/print.h"

namespace tandem::jinja {
namespace {

Value Only(const Arguments& arguments) {
  return BoundArguments("test", arguments, {"value"}, 1).Get(0);
}

bool IsDefined(Runtime& /*runtime*/, const Arguments& arguments) {
  return !Only(arguments).is_undefined();
}

template <Kind kind>
bool Is(Runtime& /*runtime*/, const Arguments& arguments) {
  return Only(arguments).is(kind);
}

template <bool (Value::*property)() const>
bool Has(Runtime& /*runtime*/, const Arguments& arguments) {
  return (Only(arguments).*property)();
}

template <bool wanted>
bool IsBool(Runtime& /*runtime*/, const Arguments& arguments) {
  const Value value = Only(arguments);
  return value.is(Kind::kBool) && value.boolean() == wanted;
}

bool IsSequence(Runtime& /*runtime*/, const Arguments& arguments) {
  switch (Only(arguments).kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
      return true;
    default:
      return false;
  }
}

bool IsIterable(Runtime& runtime, const Arguments& arguments) {
  const Value value = Only(arguments);
  return IsSequence(runtime, arguments) || value.is(Kind::kDictView) || value.is(Kind::kIterator) ||
         (value.is(Kind::kObject) && value.object().Length().has_value());
}

bool IsCallable(Runtime& /*runtime*/, const Arguments& arguments) {
  const Value value = Only(arguments);
  return value.is_undefined() || value.is(Kind::kFunction) || value.is(Kind::kObject);
}

template <bool odd>
bool HasParity(Runtime& runtime, const Arguments& arguments) {
  const Value rest = ApplyBinary(runtime, BinaryOp::kMod, Only(arguments), Value::Int(2));
  return Equal(runtime, rest, Value::Int(odd ? 1 : 0));
}

bool IsDivisibleBy(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("divisibleby", arguments, {"value", "num"}, 2);
  return Equal(runtime, ApplyBinary(runtime, BinaryOp::kMod, bound.Get(0), bound.Get(1)), Value::Int(0));
}

template <const char* method>
bool HasCase(Runtime& runtime, const Arguments& arguments) {
  const Value text = Value::String(ToStr(runtime, Only(arguments)));
  return FindStringMethod(method)(runtime, text, Arguments()).boolean();
}

constexpr char kIsLower[] = "islower";
constexpr char kIsUpper[] = "isupper";

bool IsSameAs(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("sameas", arguments, {"value", "other"}, 2);
  const Value a = bound.Get(0);
  const Value b = bound.Get(1);
  if (a.kind() != b.kind()) return false;
  if (a.is_none()) return true;
  if (a.is_number()) return a.integer() == b.integer();
  // Python's string constants are one object.
  return a.heap() == b.heap() || (a.is_string() && a.text() == b.text());
}

bool IsIn(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("in", arguments, {"value", "seq"}, 2);
  return Contains(runtime, bound.Get(1), bound.Get(0));
}

bool IsFilterName(Runtime& runtime, const Arguments& arguments) {
  return FindFilter(ToStr(runtime, Only(arguments)).bytes()) != nullptr;
}

bool IsTestName(Runtime& runtime, const Arguments& arguments) {
  return FindTest(ToStr(runtime, Only(arguments)).bytes()) != nullptr;
}

template <bool (*Relation)(Runtime&, const Value&, const Value&)>
bool Compare(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("comparison", arguments, {"0", "1"}, 2);
  return Relation(runtime, bound.Get(0), bound.Get(1));
}

bool NotEqual(Runtime& runtime, const Value& a, const Value& b) {
  return !Equal(runtime, a, b);
}
bool Greater(Runtime& runtime, const Value& a, const Value& b) {
  return Less(runtime, b, a);
}
bool GreaterEqual(Runtime& runtime, const Value& a, const Value& b) {
  return LessEqual(runtime, b, a);
}

const std::unordered_map<std::string_view, ValueTest>& Tests() {
  static const auto* const tests = new std::unordered_map<std::string_view, ValueTest>{
      {"defined", IsDefined},
      {"undefined", Is<Kind::kUndefined>},
      {"none", Is<Kind::kNone>},
      {"boolean", Is<Kind::kBool>},
      {"true", IsBool<true>},
      {"false", IsBool<false>},
      {"integer", Is<Kind::kInt>},
      {"float", Is<Kind::kFloat>},
      {"number", Has<&Value::is_number>},
      {"string", Is<Kind::kString>},
      {"mapping", Is<Kind::kDict>},
      {"escaped", Has<&Value::is_markup>},
      {"sequence", IsSequence},
      {"iterable", IsIterable},
      {"callable", IsCallable},
      {"odd", HasParity<true>},
      {"even", HasParity<false>},
      {"divisibleby", IsDivisibleBy},
      {"lower", HasCase<kIsLower>},
      {"upper", HasCase<kIsUpper>},
      {"sameas", IsSameAs},
      {"in", IsIn},
      {"filter", IsFilterName},
      {"test", IsTestName},
      {"==", Compare<Equal>},
      {"eq", Compare<Equal>},
      {"equalto", Compare<Equal>},
      {"!=", Compare<NotEqual>},
      {"ne", Compare<NotEqual>},
      {"<", Compare<Less>},
      {"lt", Compare<Less>},
      {"lessthan", Compare<Less>},
      {"<=", Compare<LessEqual>},
      {"le", Compare<LessEqual>},
      {">", Compare<Greater>},
      {"gt", Compare<Greater>},
      {"greaterthan", Compare<Greater>},
      {">=", Compare<GreaterEqual>},
      {"ge", Compare<GreaterEqual>},
  };
  return *tests;
}

}  // namespace

ValueTest FindTest(std::string_view name) {
  const auto found = Tests().find(name);
  return found != Tests().end() ? found->second : nullptr;
}

bool CallTest(Runtime& runtime, std::string_view name, const Arguments& arguments) {
  const ValueTest test = FindTest(name);
  if (test == nullptr) throw TemplateError(fmt::format("No test named '{}'.", name));
  runtime.ChargeSteps(1);
  return test(runtime, arguments);
}

}  // namespace tandem::jinja
