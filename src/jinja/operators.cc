#include "jinja/operators.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "jinja/error.h"
#include "jinja/format.h"
#include "jinja/print.h"

namespace tandem::jinja {
namespace {

std::string_view Symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSub:
      return "-";
    case BinaryOp::kMul:
      return "*";
    case BinaryOp::kDiv:
      return "/";
    case BinaryOp::kFloorDiv:
      return "//";
    case BinaryOp::kMod:
      return "%";
    case BinaryOp::kPow:
      return "**";
  }
  return "?";
}

[[noreturn]] void Unsupported(std::string_view symbol, const Value& a, const Value& b) {
  a.RequireDefined();
  b.RequireDefined();
  throw TemplateError(
      fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol, TypeName(a), TypeName(b)));
}

[[noreturn]] void Overflow() {
  throw TemplateError("integer out of the 64-bit range");
}

Value IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw TemplateError("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 63) Overflow();
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) Overflow();
  }
  return Value::Int(result);
}

Value IntegerArithmetic(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) Overflow();
      return Value::Int(result);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &result)) Overflow();
      return Value::Int(result);
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &result)) Overflow();
      return Value::Int(result);
    case BinaryOp::kPow:
      return IntegerPower(a, b);
    case BinaryOp::kDiv:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod:
      break;
  }
  if (b == 0) throw TemplateError("division by zero");
  if (op == BinaryOp::kDiv) return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the one quotient that can overflow
    if (op == BinaryOp::kMod) return Value::Int(0);
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) Overflow();
    return Value::Int(result);
  }
  const int64_t quotient = FloorDivide(a, b);
  return Value::Int(op == BinaryOp::kFloorDiv ? quotient : a - quotient * b);
}

Value RealArithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSub:
      return Value::Float(a - b);
    case BinaryOp::kMul:
      return Value::Float(a * b);
    case BinaryOp::kPow: {
      if (a == 0 && b < 0) throw TemplateError("0.0 cannot be raised to a negative power");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        throw TemplateError("complex numbers are not supported");
      }
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        throw TemplateError("floating-point result out of range");
      }
      return Value::Float(result);
    }
    case BinaryOp::kDiv:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod:
      break;
  }
  if (b == 0) throw TemplateError("float division by zero");
  if (op == BinaryOp::kDiv) return Value::Float(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (remainder == 0) remainder = std::copysign(0.0, b);
  if (op == BinaryOp::kMod) return Value::Float(remainder);
  const double quotient = (a - remainder) / b;
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1;
  return Value::Float(floored == 0 ? std::copysign(0.0, a / b) : floored);
}

Value AddStrings(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_markup() || b.is_markup()) {
    SourcedText markup = ToMarkup(runtime, a);
    markup.Append(ToMarkup(runtime, b));
    return runtime.NewString(std::move(markup), true);
  }
  runtime.ChargeString(a.text().size() + b.text().size());
  SourcedText text;
  text.Reserve(a.text().size() + b.text().size());
  text.Append(a.sourced_text());
  text.Append(b.sourced_text());
  return Value::String(std::move(text));
}

Value AddSequences(Runtime& runtime, const Value& a, const Value& b) {
  runtime.ChargeSteps(static_cast<int64_t>(a.items().size() + b.items().size()));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

Value Repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  if (count < 0) count = 0;
  if (sequence.is_string()) {
    const std::string& text = sequence.text();
    if (text.empty() || count == 0) return Value::String(SourcedText(), sequence.is_markup());
    if (count > static_cast<int64_t>(kMaxOutputBytes)) count = static_cast<int64_t>(kMaxOutputBytes) + 1;
    runtime.ChargeString(text.size() * static_cast<size_t>(count));
    SourcedText result;
    result.Reserve(text.size() * static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) result.Append(sequence.sourced_text());
    return Value::String(std::move(result), sequence.is_markup());
  }
  const std::vector<Value>& once = sequence.items();
  std::vector<Value> items;
  if (!once.empty()) {
    if (count > kMaxSteps) count = kMaxSteps + 1;
    runtime.ChargeSteps(static_cast<int64_t>(once.size()) * count);
    for (int64_t i = 0; i < count; ++i) items.insert(items.end(), once.begin(), once.end());
  }
  return sequence.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

bool IsSequence(const Value& value) {
  return value.is_string() || value.is_list_or_tuple();
}

bool ItemsEqual(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equal(runtime, a[i], b[i])) return false;
  }
  return true;
}

bool RangesEqual(const RangeData& a, const RangeData& b) {
  if (a.length != b.length || a.length == 0) return a.length == b.length;
  return a.start == b.start && (a.length == 1 || a.step == b.step);
}

bool DictsEqual(Runtime& runtime, const DictData& a, const DictData& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(runtime, value, *other)) return false;
  }
  return true;
}

// -1, 0 or 1 of two strings, numbers or sequences; 2 for unordered (not a number).
int Compare(Runtime& runtime, const Value& a, const Value& b, std::string_view symbol) {
  runtime.ChargeSteps(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) {
      return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
    }
    const double x = a.AsDouble();
    const double y = b.AsDouble();
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
  }
  if (a.is_string() && b.is_string()) {
    const int order = a.text().compare(b.text());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_list_or_tuple() && a.kind() == b.kind()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equal(runtime, x[i], y[i])) return Compare(runtime, x[i], y[i], symbol);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  a.RequireDefined();
  b.RequireDefined();
  throw TemplateError(
      fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol, TypeName(a), TypeName(b)));
}

}  // namespace

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value ApplyBinary(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const Value result = a.is_integral() && b.is_integral() ? IntegerArithmetic(op, a.integer(), b.integer())
                                                            : RealArithmetic(op, a.AsDouble(), b.AsDouble());
    return result.From(a.source() == Source::kContent ? a.source() : b.source());
  }
  if (op == BinaryOp::kAdd) {
    if (a.is_string() && b.is_string()) return AddStrings(runtime, a, b);
    if (a.is_list_or_tuple() && a.kind() == b.kind()) return AddSequences(runtime, a, b);
  }
  if (op == BinaryOp::kMul) {
    if (IsSequence(a) && b.is_integral()) return Repeat(runtime, a, b.integer());
    if (IsSequence(b) && a.is_integral()) return Repeat(runtime, b, a.integer());
  }
  if (op == BinaryOp::kMod && a.is_string()) return FormatPercent(runtime, a, b);
  Unsupported(Symbol(op), a, b);
}

Value Negate(const Value& a) {
  if (a.is(Kind::kFloat)) return Value::Float(-a.real()).From(a.source());
  if (a.is_integral()) return IntegerArithmetic(BinaryOp::kSub, 0, a.integer()).From(a.source());
  a.RequireDefined();
  throw TemplateError(fmt::format("bad operand type for unary -: '{}'", TypeName(a)));
}

Value Plus(const Value& a) {
  if (a.is(Kind::kFloat)) return a;
  if (a.is_integral()) return Value::Int(a.integer()).From(a.source());
  a.RequireDefined();
  throw TemplateError(fmt::format("bad operand type for unary +: '{}'", TypeName(a)));
}

bool Equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.ChargeSteps(1);
  if (a.is_number() && b.is_number()) return KeysEqual(a, b);
  if (a.kind() != b.kind()) return false;
  if (a.heap() != nullptr && a.heap() == b.heap()) return true;
  switch (a.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return ItemsEqual(runtime, a.items(), b.items());
    case Kind::kDict:
      return DictsEqual(runtime, a.dict(), b.dict());
    case Kind::kRange:
      return RangesEqual(a.range(), b.range());
    default:
      return false;
  }
}

bool Less(Runtime& runtime, const Value& a, const Value& b) {
  return Compare(runtime, a, b, "<") == -1;
}

bool LessEqual(Runtime& runtime, const Value& a, const Value& b) {
  const int order = Compare(runtime, a, b, "<=");
  return order == -1 || order == 0;
}

bool Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      throw TemplateError(
          fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
    }
    runtime.ChargeSteps(static_cast<int64_t>(container.text().size() / 64));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) return container.dict().Find(item) != nullptr;
  if (container.is(Kind::kDictView) && container.view().view_kind == DictViewKind::kKeys) {
    return container.view().dict.dict().Find(item) != nullptr;
  }
  if (container.is_list_or_tuple()) {
    for (const Value& candidate : container.items()) {
      if (Equal(runtime, candidate, item)) return true;
    }
    return false;
  }
  for (const Value& candidate : runtime.Iterate(container)) {
    if (Equal(runtime, candidate, item)) return true;
  }
  return false;
}

}  // namespace tandem::jinja
