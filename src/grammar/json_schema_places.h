// Where a schema says what it is refused for.
#pragma once

#include "base/result.h"
#include "grammar/json_schema_document.h"

namespace tandem {

// The error of a conversion with the pointer of the keyword as the document has it: schemas that are combined
// (`allOf`, references beside other keywords) are converted as one, at a place that may not be that of their
// parts. As it is, if it is no refusal of a keyword. root: may be any JSON.
Error WithPlaceOfKeyword(const Json& root, Error error);

}  // namespace tandem
