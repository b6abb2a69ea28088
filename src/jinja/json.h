// JSON documents as template values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "jinja/value.h"

namespace tandem::jinja {

// Objects keep their order. Unsigned integers past the 64-bit signed range become floats. Throws
// TemplateError for a document nested deeper than kMaxValueDepth.
Value FromJson(const nlohmann::ordered_json& json);

}  // namespace tandem::jinja
