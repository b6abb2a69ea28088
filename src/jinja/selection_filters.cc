// map, select, reject, selectattr and rejectattr: generators that run a filter or a test on each item.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "jinja/attribute_path.h"
#include "jinja/error.h"
#include "jinja/filters.h"
#include "jinja/value_tests.h"

namespace tandem::jinja {
namespace {

const std::string& RequireName(const Value& name) {
  if (!name.is_string()) throw TemplateError(fmt::format("no filter or test {}", TypeName(name)));
  return name.text();
}

void RequireValue(const Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("missing required argument: 'value'");
}

// What the generator holds on to, as one value with a bounded depth.
Value AllOf(const Arguments& arguments) {
  std::vector<Value> held = arguments.positional;
  for (const auto& [name, value] : arguments.named) held.push_back(value);
  return Value::List(std::move(held));
}

// The call of a filter or test on item: the arguments behind the first skipped ones, with item in front.
Arguments CallOn(const Arguments& arguments, size_t skipped, const Value& item) {
  Arguments call;
  call.positional.push_back(item);
  call.positional.insert(call.positional.end(),
                         arguments.positional.begin() + static_cast<ptrdiff_t>(skipped),
                         arguments.positional.end());
  call.named = arguments.named;
  call.source_of_names = arguments.source_of_names;
  return call;
}

std::vector<Value> MapAttribute(Runtime& runtime, const Arguments& arguments) {
  Value attribute = Value::None();
  Value fallback = Value::None();
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      fallback = value;
    } else {
      throw TemplateError(fmt::format("Unexpected keyword argument '{}'", name));
    }
  }
  const AttributePath path(attribute);
  std::vector<Value> items;
  for (const Value& item : runtime.Iterate(arguments.positional[0])) {
    items.push_back(path.Resolve(runtime, item, fallback));
  }
  return items;
}

Value Map(Runtime& /*runtime*/, const Arguments& arguments) {
  RequireValue(arguments);
  return MakeIterator("generator", AllOf(arguments), [arguments](Runtime& runtime) {
    std::vector<Value> items;
    if (!IsTruthy(arguments.positional[0])) return items;
    bool by_attribute = false;
    for (const auto& [name, value] : arguments.named) by_attribute |= name == "attribute";
    if (arguments.positional.size() == 1 && by_attribute) return MapAttribute(runtime, arguments);
    if (arguments.positional.size() < 2) throw TemplateError("map requires a filter argument");
    const std::string& filter = RequireName(arguments.positional[1]);
    for (const Value& item : runtime.Iterate(arguments.positional[0])) {
      items.push_back(CallFilter(runtime, filter, CallOn(arguments, 2, item)));
    }
    return items;
  });
}

template <bool keep, bool by_attribute>
Value Select(Runtime& /*runtime*/, const Arguments& arguments) {
  RequireValue(arguments);
  return MakeIterator("generator", AllOf(arguments), [arguments](Runtime& runtime) {
    std::vector<Value> items;
    if (!IsTruthy(arguments.positional[0])) return items;
    constexpr size_t kTestIndex = by_attribute ? 2 : 1;
    if (arguments.positional.size() < kTestIndex) {
      throw TemplateError("Missing parameter for attribute name");
    }
    const AttributePath path(by_attribute ? arguments.positional[1] : Value::None());
    const bool has_test = arguments.positional.size() > kTestIndex;
    for (const Value& item : runtime.Iterate(arguments.positional[0])) {
      const Value tested = path.Resolve(runtime, item);
      const bool passed = has_test ? CallTest(runtime, RequireName(arguments.positional[kTestIndex]),
                                              CallOn(arguments, kTestIndex + 1, tested))
                                   : IsTruthy(tested);
      if (passed == keep) items.push_back(item);
    }
    return items;
  });
}

}  // namespace

const FilterTable& SelectionFilters() {
  static const auto* const filters = new FilterTable{
      {"map", Map},
      {"select", Select<true, false>},
      {"reject", Select<false, false>},
      {"selectattr", Select<true, true>},
      {"rejectattr", Select<false, true>},
  };
  return *filters;
}

}  // namespace tandem::jinja
