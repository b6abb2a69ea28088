#include "jinja/attribute_path.h"

#include <algorithm>
#include <string>

#include "jinja/access.h"
#include "jinja/number_parse.h"
#include "jinja/split.h"
#include "jinja/unicode.h"

namespace tandem::jinja {

AttributePath::AttributePath(const Value& attribute) {
  if (attribute.is_string()) {
    AddParts(attribute.text());
  } else if (!attribute.is_none() && !attribute.is_undefined()) {
    parts_.push_back(attribute);
  }
}

void AttributePath::AddParts(std::string_view dotted) {
  for (std::string_view part : SplitAt(dotted, ".", -1, false)) {
    const bool digits =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::optional<int64_t> index = digits ? ParseInteger(part, 10) : std::nullopt;
    parts_.push_back(index ? Value::Int(*index) : Value::String(std::string(part)));
  }
}

Value AttributePath::Resolve(Runtime& runtime, Value item, const Value& fallback) const {
  for (const Value& part : parts_) {
    runtime.ChargeSteps(1);
    item = GetItem(runtime, item, part);
    if (item.is_undefined() && !fallback.is_none()) item = fallback;
  }
  return item;
}

Value IgnoreCase(const Value& value) {
  return value.is_string() ? Value::String(value.sourced_text().Mapped(ToLower)) : value;
}

}  // namespace tandem::jinja
