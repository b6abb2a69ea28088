// Schemas that hold at the same time, and schemas that cannot.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/json_schema_document.h"

namespace tandem {

// One schema without `allOf`, and without a `$ref` beside other keywords, that says what schema says.
// Alternatives in it are left as they are. Errors: keywords that cannot be said in one schema (kUnsupported),
// those of CheckKeywords.
Result<Json> FlattenSchema(const Json& root, const Json& schema, std::string_view at);

// What holds where both do: object schemas that FlattenSchema made.
Result<Json> MergeSchemas(const Json& root, const Json& first, const Json& second, std::string_view at);

// Whether no value that is made for one of the two can be one of the other, as far as that is easy to see:
// their types differ, or their values, or those of a property that both require, or one requires what the
// other forbids.
bool AreDisjoint(const Json& root, const Json& first, const Json& second);

// Whether the value obeys the type, the bounds and the lengths of the schema. Errors: what would need more
// than that.
Result<bool> Admits(const Json& schema, const Json& value, std::string_view at);

}  // namespace tandem
