// Subscripts and attributes, in the order that the sandbox tries them: value[key] falls back to the
// attribute, value.name falls back to the item. What the sandbox forbids (append, update, names with _) is
// undefined.
#pragma once

#include <optional>
#include <string_view>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

Value GetItem(Runtime& runtime, const Value& object, const Value& key);
Value GetAttribute(Runtime& runtime, const Value& object, std::string_view name);
// object[start:stop:step]; None stands for an absent bound.
Value GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
               const Value& step);

// The bounds of a Python slice over length items, both within it.
struct SliceBounds {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};
SliceBounds ResolveSlice(const Value& start, const Value& stop, const Value& step, int64_t length);

// An undefined value that names what the object lacks.
Value MissingAttribute(const Value& object, std::string_view name);

}  // namespace tandem::jinja
