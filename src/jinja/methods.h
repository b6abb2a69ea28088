// The methods of Python's str, list, tuple and dict that a sandboxed template may call.
#pragma once

#include <optional>
#include <string_view>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

// The bound method; an undefined value if the sandbox forbids it; nothing if the type has no such method.
std::optional<Value> FindMethod(const Value& object, std::string_view name);

using Method = Value (*)(Runtime& runtime, const Value& self, const Arguments& arguments);
Method FindStringMethod(std::string_view name);
Method FindContainerMethod(Kind kind, std::string_view name);

}  // namespace tandem::jinja
