// Jinja's tests: what may follow "is".
#pragma once

#include <string_view>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

// arguments.positional[0] is the tested value.
using ValueTest = bool (*)(Runtime& runtime, const Arguments& arguments);

// Null if there is none of this name.
ValueTest FindTest(std::string_view name);
// Throws TemplateError if there is none of this name.
bool CallTest(Runtime& runtime, std::string_view name, const Arguments& arguments);

}  // namespace tandem::jinja
