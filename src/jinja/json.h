// JSON documents as template values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "jinja/value.h"

namespace tandem::jinja {

// source: of every string, key, number, bool and none in it. Objects keep their order. Unsigned integers past
// the 64-bit signed range become floats. Throws TemplateError for a document nested deeper than
// kMaxValueDepth.
Value FromJson(const nlohmann::ordered_json& json, Source source);

}  // namespace tandem::jinja
