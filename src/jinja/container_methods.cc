// The methods of Python's list, tuple and dict that change nothing, and the lookup of bound methods.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jinja/access.h"
#include "jinja/arguments.h"
#include "jinja/error.h"
#include "jinja/methods.h"
#include "jinja/operators.h"

namespace tandem::jinja {
namespace {

// The names that the immutable sandbox hides.
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear", "pop",    "reverse",
                                                          "insert", "sort",  "extend", "remove"};

Value ListIndex(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("index", arguments, {"0", "1", "2"}, 1);
  const auto length = static_cast<int64_t>(self.items().size());
  const auto clamp = [length](int64_t position) {
    return position < 0 ? std::max<int64_t>(position + length, 0) : std::min(position, length);
  };
  const int64_t end = clamp(bound.Int(2, length));
  for (int64_t i = clamp(bound.Int(1, 0)); i < end; ++i) {
    if (Equal(runtime, self.items()[static_cast<size_t>(i)], bound.Get(0))) return Value::Int(i);
  }
  throw TemplateError("value is not in list");
}

Value ListCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"0"}, 1);
  int64_t count = 0;
  for (const Value& item : self.items()) count += Equal(runtime, item, bound.Get(0)) ? 1 : 0;
  return Value::Int(count);
}

Value ListCopy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("copy", arguments, {}, 0);
  return runtime.NewList(self.items());
}

template <DictViewKind view_kind>
Value DictViewOf(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("dict view", arguments, {}, 0);
  auto data = std::make_shared<DictViewData>();
  data->depth = ContainerDepth(self);
  data->view_kind = view_kind;
  data->dict = self;
  return Value::Heap(Kind::kDictView, std::move(data));
}

Value DictGet(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("get", arguments, {"0", "1"}, 1);
  const Value* found = self.dict().Find(bound.Get(0));
  return found != nullptr ? *found : bound.Get(1, Value::None());
}

Value DictCopy(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("copy", arguments, {}, 0);
  return self;  // nothing can change either of the two
}

template <size_t size>
bool IsOneOf(const std::array<std::string_view, size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsForbidden(Kind kind, std::string_view name) {
  return (kind == Kind::kDict && IsOneOf(kDictChanges, name)) ||
         (kind == Kind::kList && IsOneOf(kListChanges, name));
}

}  // namespace

Method FindContainerMethod(Kind kind, std::string_view name) {
  if (kind == Kind::kDict) {
    if (name == "items") return DictViewOf<DictViewKind::kItems>;
    if (name == "keys") return DictViewOf<DictViewKind::kKeys>;
    if (name == "values") return DictViewOf<DictViewKind::kValues>;
    if (name == "get") return DictGet;
    if (name == "copy") return DictCopy;
    return nullptr;
  }
  if (kind != Kind::kList && kind != Kind::kTuple) return nullptr;
  if (name == "index") return ListIndex;
  if (name == "count") return ListCount;
  if (name == "copy" && kind == Kind::kList) return ListCopy;
  return nullptr;
}

std::optional<Value> FindMethod(const Value& object, std::string_view name) {
  if (IsForbidden(object.kind(), name)) {
    return Value::Undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, TypeName(object)));
  }
  const Method method =
      object.is_string() ? FindStringMethod(name) : FindContainerMethod(object.kind(), name);
  if (method == nullptr) return std::nullopt;
  const auto call = [method, object](Runtime& runtime, const Arguments& arguments) {
    return method(runtime, object, arguments);
  };
  return MakeFunction(fmt::format("<built-in method {} of {} object>", name, TypeName(object)), call, object);
}

}  // namespace tandem::jinja
