// The attribute argument of sort, map, selectattr and others: "a.b.0" names an item of an item.
#pragma once

#include <string_view>
#include <vector>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

class AttributePath {
 public:
  // attribute: None (the item itself), a dotted path or an index.
  explicit AttributePath(const Value& attribute);
  explicit AttributePath(std::string_view dotted) { AddParts(dotted); }

  // fallback: stands for an undefined part, unless it is none.
  Value Resolve(Runtime& runtime, Value item, const Value& fallback = Value::None()) const;

 private:
  void AddParts(std::string_view dotted);
  std::vector<Value> parts_;
};

// Text in lower case; any other value as it is.
Value IgnoreCase(const Value& value);

}  // namespace tandem::jinja
