// Jinja's filters.
#pragma once

#include <string_view>
#include <unordered_map>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

// arguments.positional[0] is the filtered value.
using Filter = Value (*)(Runtime& runtime, const Arguments& arguments);
using FilterTable = std::unordered_map<std::string_view, Filter>;

// Null if there is none of this name.
Filter FindFilter(std::string_view name);
// Throws TemplateError if there is none of this name.
Value CallFilter(Runtime& runtime, std::string_view name, const Arguments& arguments);

// The three groups that FindFilter looks through.
const FilterTable& TextFilters();
const FilterTable& SequenceFilters();
const FilterTable& SelectionFilters();

}  // namespace tandem::jinja
