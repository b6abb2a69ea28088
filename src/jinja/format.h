// Python's two ways to format: text % values, and str.format.
#pragma once

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

// format % values, where values is a tuple, a dict or one value.
Value FormatPercent(Runtime& runtime, const Value& format, const Value& values);
// format.format(arguments).
Value FormatBraces(Runtime& runtime, const Value& format, const Arguments& arguments);

}  // namespace tandem::jinja
