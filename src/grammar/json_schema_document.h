// A JSON schema as it was sent: read, and its parts found by their pointers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

// Properties keep their order: it is that of the answer.
using Json = nlohmann::ordered_json;

// Errors: text that is no JSON, keys that occur twice in an object, arrays and objects nested deeper than
// 100. what: as the sentence names the text, "JSON schema".
Result<Json> ParseJsonText(std::string_view text, std::string_view what);

// The pointer of a part: `#/properties/a~1b`.
std::string JoinPointer(std::string_view pointer, std::string_view key);
std::string JoinPointer(std::string_view pointer, size_t index);

// What a `$ref` names. Errors: other documents and anchors (kUnsupported), nothing there. at: the pointer of
// the schema that has it.
Result<const Json*> ResolveReference(const Json& root, std::string_view reference, std::string_view at);

}  // namespace tandem
