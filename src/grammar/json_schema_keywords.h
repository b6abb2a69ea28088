// The keywords of JSON schemas (drafts 4 to 2020-12): which say nothing about a value, which are enforced,
// and which are refused because they would not be.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/json_schema_document.h"

namespace tandem {

// Titles, defaults, definitions, `x-` extensions and the like.
bool IsAnnotation(std::string_view keyword);

// The types that a keyword is about, as bits of JsonTypes; 0 for those that are about all.
unsigned TypesOfKeyword(std::string_view keyword);

// Sets of types. An integer is a number too.
enum JsonTypes : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,  // a number that is no integer
  kString = 16,
  kArray = 32,
  kObject = 64,
  kNumber = kInteger | kFraction,
  kAllTypes = 127,
};
unsigned TypeOfValue(const Json& value);

// Every keyword of the object is one of those that are enforced, and its value is what the keyword wants. Not
// of the schemas in it. at: its pointer, which the sentence begins with.
Status CheckKeywords(const Json& schema, std::string_view at);

// The set that `type` says; all without it. schema: has passed CheckKeywords.
unsigned TypesOf(const Json& schema);

}  // namespace tandem
