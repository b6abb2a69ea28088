// Parses template source into its syntax tree.
#pragma once

#include <string_view>

#include "jinja/ast.h"

namespace tandem::jinja {

// Throws TemplateError with the line.
Body ParseTemplate(std::string_view source);

}  // namespace tandem::jinja
