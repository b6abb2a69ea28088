// The functions that every template finds: range, dict, namespace, raise_exception, strftime_now, joiner,
// cycler.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace tandem::jinja {

std::optional<Value> FindGlobal(std::string_view name);

}  // namespace tandem::jinja
