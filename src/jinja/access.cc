#include "jinja/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "jinja/error.h"
#include "jinja/methods.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

std::string DescribeType(const Value& object) {
  if (object.is_none()) return "None";
  return fmt::format("{} object", TypeName(object));
}

std::string QuotedType(const Value& object) {
  return fmt::format("'{}'", DescribeType(object));
}

Value MissingItem(Runtime& runtime, const Value& object, const Value& key) {
  if (key.is_string()) return MissingAttribute(object, key.text());
  return Value::Undefined(
      fmt::format("{} has no element {}", DescribeType(object), ToRepr(runtime, key).bytes().substr(0, 200)));
}

std::optional<Value> FindIndexed(Runtime& runtime, const Value& object, int64_t index) {
  const int64_t length = runtime.Length(object);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  if (object.is_list_or_tuple()) return object.items()[static_cast<size_t>(index)];
  if (object.is(Kind::kRange)) {
    return Value::Int(object.range().start + index * object.range().step).From(object.range().source);
  }
  const std::string_view text = object.text();
  const auto part = [&](size_t begin, size_t end) {
    return Value::String(object.sourced_text().Part(text.substr(begin, end - begin)), object.is_markup());
  };
  if (static_cast<size_t>(length) == text.size()) {
    return part(static_cast<size_t>(index), static_cast<size_t>(index) + 1);
  }
  size_t offset = 0;
  for (int64_t i = 0; i < index; ++i) NextCodePoint(text, offset);
  const size_t begin = offset;
  NextCodePoint(text, offset);
  return part(begin, offset);
}

std::optional<Value> FindItem(Runtime& runtime, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kDict: {
      if (key.is(Kind::kList) || key.is(Kind::kDict)) return std::nullopt;
      const Value* found = object.dict().Find(key);
      return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
    }
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return key.is_integral() ? FindIndexed(runtime, object, key.integer()) : std::nullopt;
    default:
      return std::nullopt;
  }
}

// An attribute of the Python type. An undefined value means: it exists, and the sandbox forbids it.
std::optional<Value> FindTypeAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__") {
    return Value::Undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, TypeName(object)));
  }
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* found = object.ns().attributes.Find(name);
      if (found == nullptr) return std::nullopt;
      if (name.substr(0, 1) == "_") {
        return Value::Undefined(
            fmt::format("access to attribute '{}' of 'Namespace' object is unsafe.", name));
      }
      return *found;
    }
    case Kind::kObject:
      return object.object().Attribute(runtime, name);
    case Kind::kFunction:
      if (const Value* found = object.function().attributes.Find(name)) return *found;
      return std::nullopt;
    case Kind::kTuple:
      if (object.is_group() && name == "grouper") return object.items()[0];
      if (object.is_group() && name == "list") return object.items()[1];
      return FindMethod(object, name);
    default:
      return FindMethod(object, name);
  }
}

int64_t SliceIndex(const Value& value) {
  if (!value.is_integral()) {
    throw TemplateError("slice indices must be integers or None or have an __index__ method");
  }
  return value.integer();
}

Value SliceString(Runtime& runtime, const Value& object, const SliceBounds& bounds, int64_t length) {
  const SourcedText& text = object.sourced_text();
  const std::string_view bytes = text.bytes();
  // Where the characters begin; empty if each is a byte.
  std::vector<size_t> begins;
  if (static_cast<size_t>(length) != bytes.size()) {
    begins.reserve(static_cast<size_t>(length) + 1);
    for (size_t offset = 0; offset < bytes.size(); NextCodePoint(bytes, offset)) begins.push_back(offset);
    begins.push_back(bytes.size());
    runtime.ChargeString(bytes.size());
  }
  const auto characters = [&](int64_t first, int64_t count) {
    const size_t begin = begins.empty() ? static_cast<size_t>(first) : begins[static_cast<size_t>(first)];
    const size_t end =
        begins.empty() ? static_cast<size_t>(first + count) : begins[static_cast<size_t>(first + count)];
    return bytes.substr(begin, end - begin);
  };
  if (bounds.step == 1) {
    return runtime.NewString(text.Part(characters(bounds.start, bounds.count)), object.is_markup());
  }
  SourcedText result;
  for (int64_t i = 0; i < bounds.count; ++i) {
    result.Append(text, characters(bounds.start + i * bounds.step, 1));
  }
  return runtime.NewString(std::move(result), object.is_markup());
}

}  // namespace

Value MissingAttribute(const Value& object, std::string_view name) {
  return Value::Undefined(fmt::format("{} has no attribute '{}'", QuotedType(object), name.substr(0, 200)));
}

Value GetItem(Runtime& runtime, const Value& object, const Value& key) {
  object.RequireDefined();
  if (std::optional<Value> item = FindItem(runtime, object, key)) return *item;
  if (key.is_string()) {
    if (std::optional<Value> attribute = FindTypeAttribute(runtime, object, key.text())) return *attribute;
  }
  return MissingItem(runtime, object, key);
}

Value GetAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  object.RequireDefined();
  if (std::optional<Value> attribute = FindTypeAttribute(runtime, object, name)) return *attribute;
  if (object.is(Kind::kDict)) {
    if (const Value* found = object.dict().Find(name)) return *found;
  }
  return MissingAttribute(object, name);
}

SliceBounds ResolveSlice(const Value& start, const Value& stop, const Value& step, int64_t length) {
  SliceBounds bounds;
  if (!step.is_none()) bounds.step = SliceIndex(step);
  if (bounds.step == 0) throw TemplateError("slice step cannot be zero");
  // A step beyond the length takes one item at most; the bound keeps the arithmetic below from overflowing.
  bounds.step = std::clamp(bounds.step, -length - 1, length + 1);
  const bool backward = bounds.step < 0;
  const auto resolve = [&](const Value& bound, int64_t missing) {
    if (bound.is_none()) return missing;
    int64_t index = SliceIndex(bound);
    if (index < 0) index = index < -length ? -1 : index + length;
    if (index < 0) return int64_t{backward ? -1 : 0};
    return std::min(index, backward ? length - 1 : length);
  };
  bounds.start = resolve(start, backward ? length - 1 : 0);
  const int64_t end = resolve(stop, backward ? -1 : length);
  if (backward) {
    bounds.count = bounds.start > end ? (bounds.start - end - 1) / -bounds.step + 1 : 0;
  } else {
    bounds.count = end > bounds.start ? (end - bounds.start - 1) / bounds.step + 1 : 0;
  }
  if (bounds.count == 0) bounds.start = 0;
  return bounds;
}

Value GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
               const Value& step) {
  object.RequireDefined();
  switch (object.kind()) {
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      break;
    case Kind::kDict:
      throw TemplateError("unhashable type: 'slice'");
    default:
      throw TemplateError(fmt::format("'{}' object is not subscriptable", TypeName(object)));
  }
  const int64_t length = runtime.Length(object);
  const SliceBounds bounds = ResolveSlice(start, stop, step, length);
  if (object.is_string()) return SliceString(runtime, object, bounds, length);
  if (object.is(Kind::kRange)) {
    const RangeData& range = object.range();
    auto data = std::make_shared<RangeData>();
    data->start = range.start + bounds.start * range.step;
    data->step = range.step * bounds.step;
    data->length = bounds.count;
    data->source = range.source;
    data->stop = data->start + data->length * data->step;
    return Value::Heap(Kind::kRange, std::move(data));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  runtime.ChargeSteps(bounds.count);
  return object.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

}  // namespace tandem::jinja
