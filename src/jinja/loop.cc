#include "jinja/loop.h"

#include <fmt/format.h>

#include <utility>

#include "jinja/error.h"
#include "jinja/operators.h"

namespace tandem::jinja {
namespace {

// A method of the loop; it holds no reference to the loop, whose values could hold the method.
Value LoopMethod(std::string name, const std::weak_ptr<LoopData>& loop,
                 Value (*method)(LoopData& loop, Runtime& runtime, const Arguments& arguments)) {
  return MakeFunction(std::move(name), [loop, method](Runtime& runtime, const Arguments& arguments) {
    const std::shared_ptr<LoopData> alive = loop.lock();
    if (!alive) throw TemplateError("the loop has ended");
    return method(*alive, runtime, arguments);
  });
}

Value Cycle(LoopData& loop, Runtime& /*runtime*/, const Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("no items for cycling given");
  return arguments.positional[static_cast<size_t>(loop.index) % arguments.positional.size()];
}

Value Changed(LoopData& loop, Runtime& runtime, const Arguments& arguments) {
  const Value now = Value::Tuple(arguments.positional);
  if (loop.last_changed && Equal(runtime, *loop.last_changed, now)) return Value::Bool(false);
  loop.last_changed = now;
  return Value::Bool(true);
}

}  // namespace

LoopData::LoopData(std::vector<Value> loop_items, int64_t loop_depth)
    : items(std::move(loop_items)), length(static_cast<int64_t>(items.size())), depth0(loop_depth) {
  depth = ContainerDepth(items);
}

std::string LoopData::Describe() const {
  return fmt::format("<LoopContext {}/{}>", index + 1, length);
}

std::optional<Value> LoopData::Attribute(Runtime& /*runtime*/, std::string_view name) {
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(depth0 + 1);
  if (name == "depth0") return Value::Int(depth0);
  const auto item_at = [this](int64_t position) -> std::optional<Value> {
    if (position < 0 || position >= static_cast<int64_t>(items.size())) return std::nullopt;
    return items[static_cast<size_t>(position)];
  };
  if (name == "previtem") return item_at(index - 1).value_or(Value::Undefined("there is no previous item"));
  if (name == "nextitem") return item_at(index + 1).value_or(Value::Undefined("there is no next item"));
  const auto self = std::static_pointer_cast<LoopData>(weak_from_this().lock());
  if (name == "cycle") return LoopMethod("cycle", self, Cycle);
  if (name == "changed") return LoopMethod("changed", self, Changed);
  return std::nullopt;
}

std::optional<Value> LoopData::Call(Runtime& runtime, const Arguments& arguments) {
  if (!recurse) {
    throw TemplateError("The loop must have the 'recursive' marker to be called recursively.");
  }
  const NativeFunction keep_alive = recurse;
  return keep_alive(runtime, arguments);
}

void LoopData::Release() {
  items.clear();
  last_changed.reset();
  recurse = nullptr;
}

}  // namespace tandem::jinja
