#include "jinja/runtime.h"

#include <fmt/format.h>

#include <utility>

#include "jinja/error.h"
#include "jinja/unicode.h"

namespace tandem::jinja {

Runtime::~Runtime() {
  for (Kept& kept : kept_) kept.release(kept.object.get());
}

void Runtime::ChargeSteps(int64_t steps) {
  steps_ += steps;
  if (steps_ > kMaxSteps) throw TemplateError(fmt::format("more than {} steps", kMaxSteps));
}

void Runtime::ChargeString(size_t bytes) {
  if (bytes > kMaxOutputBytes) throw TemplateError(fmt::format("text longer than {} bytes", kMaxOutputBytes));
  produced_bytes_ += bytes;
  if (produced_bytes_ > kMaxProducedBytes) {
    throw TemplateError(fmt::format("more than {} bytes of intermediate text", kMaxProducedBytes));
  }
}

Value Runtime::NewString(SourcedText text, bool markup) {
  ChargeString(text.size());
  return Value::String(std::move(text), markup);
}

Value Runtime::NewList(std::vector<Value> items) {
  ChargeSteps(static_cast<int64_t>(items.size()));
  return Value::List(std::move(items));
}

Value Runtime::Call(const Value& callee, const Arguments& arguments) {
  const CallDepthGuard guard(*this);
  ChargeSteps(1);
  if (callee.is(Kind::kFunction)) return callee.function().call(*this, arguments);
  if (callee.is(Kind::kObject)) {
    if (std::optional<Value> result = callee.object().Call(*this, arguments)) return *result;
  }
  callee.RequireDefined();
  throw TemplateError(fmt::format("'{}' object is not callable", TypeName(callee)));
}

std::vector<Value> Runtime::Iterate(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
    case Kind::kTuple:
      items = value.items();
      break;
    case Kind::kString: {
      const std::string& text = value.text();
      ChargeSteps(static_cast<int64_t>(text.size()));
      for (size_t offset = 0; offset < text.size();) {
        const size_t start = offset;
        NextCodePoint(text, offset);
        items.push_back(
            Value::String(value.sourced_text().Part(std::string_view(text).substr(start, offset - start)),
                          value.is_markup()));
      }
      return items;
    }
    case Kind::kDict:
      for (const auto& [key, item] : value.dict().entries) items.push_back(key);
      break;
    case Kind::kDictView:
      for (const auto& [key, item] : value.view().dict.dict().entries) {
        switch (value.view().view_kind) {
          case DictViewKind::kKeys:
            items.push_back(key);
            break;
          case DictViewKind::kValues:
            items.push_back(item);
            break;
          case DictViewKind::kItems:
            items.push_back(Value::Tuple({key, item}));
            break;
        }
      }
      break;
    case Kind::kRange: {
      const RangeData& range = value.range();
      ChargeSteps(range.length);
      for (int64_t i = 0; i < range.length; ++i)
        items.push_back(Value::Int(range.start + i * range.step).From(range.source));
      return items;
    }
    case Kind::kIterator: {
      IteratorData& iterator = value.iterator();
      if (iterator.produce) {
        const CallDepthGuard guard(*this);
        const auto produce = std::exchange(iterator.produce, nullptr);
        iterator.items = produce(*this);
      }
      items.assign(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.items.clear();
      iterator.next = 0;
      break;
    }
    default:
      throw TemplateError(fmt::format("'{}' object is not iterable", TypeName(value)));
  }
  ChargeSteps(static_cast<int64_t>(items.size()));
  return items;
}

std::optional<Value> Runtime::TakeFirst(const Value& value) {
  if (!value.is(Kind::kIterator)) {
    if (value.is_list_or_tuple()) {
      return value.items().empty() ? std::nullopt : std::optional<Value>(value.items().front());
    }
    std::vector<Value> items = Iterate(value);
    return items.empty() ? std::nullopt : std::optional<Value>(std::move(items.front()));
  }
  std::vector<Value> rest = Iterate(value);
  if (rest.empty()) return std::nullopt;
  IteratorData& iterator = value.iterator();
  iterator.items = std::move(rest);
  iterator.next = 1;
  return iterator.items.front();
}

int64_t Runtime::Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      ChargeSteps(static_cast<int64_t>(value.text().size() / 16));
      return CodePointCount(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kDictView:
      return static_cast<int64_t>(value.view().dict.dict().entries.size());
    case Kind::kRange:
      return value.range().length;
    case Kind::kObject:
      if (const std::optional<int64_t> length = value.object().Length()) return *length;
      [[fallthrough]];
    default:
      throw TemplateError(fmt::format("object of type '{}' has no len()", TypeName(value)));
  }
}

Value Runtime::NewNamespace() {
  auto data = std::make_shared<NamespaceData>();
  Keep(data, [](void* object) { static_cast<NamespaceData*>(object)->attributes.entries.clear(); });
  return Value::Heap(Kind::kNamespace, std::move(data));
}

void Runtime::Keep(std::shared_ptr<void> object, void (*release)(void*)) {
  if (kept_.size() >= kMaxKeptObjects) {
    throw TemplateError(fmt::format("more than {} namespaces and macros", kMaxKeptObjects));
  }
  kept_.push_back({std::move(object), release});
}

CallDepthGuard::CallDepthGuard(Runtime& runtime) : runtime_(runtime) {
  if (runtime.call_depth_ >= kMaxCallDepth) throw TemplateError("calls nested too deeply");
  ++runtime.call_depth_;
}

}  // namespace tandem::jinja
