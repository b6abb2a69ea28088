// The functions that every template finds: range, dict, namespace, raise_exception, strftime_now, joiner,
// cycler.
#pragma once

#include <optional>
#include <string_view>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

std::optional<Value> FindGlobal(std::string_view name);

}  // namespace tandem::jinja
