#include "jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "jinja/error.h"

namespace tandem::jinja {

BoundArguments::BoundArguments(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, size_t num_required)
    : function_(function), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    throw TemplateError(fmt::format("{}() takes at most {} arguments ({} given)", function, names.size(),
                                    arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      throw TemplateError(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    }
    const Value*& slot = values_[static_cast<size_t>(found - names.begin())];
    if (slot != nullptr) {
      throw TemplateError(fmt::format("{}() got multiple values for argument '{}'", function, name));
    }
    slot = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (values_[i] == nullptr) {
      throw TemplateError(
          fmt::format("{}() missing required argument: '{}'", function, *(names.begin() + i)));
    }
  }
}

int64_t BoundArguments::Int(size_t index, int64_t fallback) const {
  if (!Has(index)) return fallback;
  const Value& value = *values_[index];
  value.RequireDefined();
  if (!value.is_integral()) {
    throw TemplateError(
        fmt::format("{}(): '{}' object cannot be interpreted as an integer", function_, TypeName(value)));
  }
  return value.integer();
}

bool BoundArguments::Bool(size_t index, bool fallback) const {
  return Has(index) ? IsTruthy(*values_[index]) : fallback;
}

const Value& BoundArguments::String(size_t index) const {
  if (!values_[index]->is_string()) {
    throw TemplateError(
        fmt::format("{}() argument must be str, not {}", function_, TypeName(*values_[index])));
  }
  return *values_[index];
}

}  // namespace tandem::jinja
