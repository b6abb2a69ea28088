// Keyword arguments of Python that follow a JSON schema.
#pragma once

#include <nlohmann/json.hpp>

namespace tandem {

// A format for structural tags of what stands between the parentheses: a=<value>, b=<value>, in the order of
// the schema's properties (whole: the schema), required ones first; values are JSON, which the parser reads
// as well. What the schema says beside its properties is not enforced.
nlohmann::ordered_json PythonicArgumentsFormat(const nlohmann::ordered_json& whole);

}  // namespace tandem
