// Matches a call's arguments with a native function's parameters, as Python does.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace tandem::jinja {

class BoundArguments {
 public:
  // The first num_required of names must be given. Anything that does not fit throws TemplateError.
  BoundArguments(std::string_view function, const Arguments& arguments,
                 std::initializer_list<std::string_view> names, size_t num_required);

  bool Has(size_t index) const { return values_[index] != nullptr; }
  // Undefined if absent.
  Value Get(size_t index) const { return Has(index) ? *values_[index] : Value(); }
  Value Get(size_t index, const Value& fallback) const { return Has(index) ? *values_[index] : fallback; }
  // These throw TemplateError for another type.
  int64_t Int(size_t index, int64_t fallback) const;
  bool Bool(size_t index, bool fallback) const;  // by truth value
  const std::string& Text(size_t index) const { return String(index).text(); }
  const Value& String(size_t index) const;

 private:
  std::string function_;
  std::vector<const Value*> values_;
};

}  // namespace tandem::jinja
