// The filters that order, group and sum up sequences.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "jinja/arguments.h"
#include "jinja/attribute_path.h"
#include "jinja/error.h"
#include "jinja/filters.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/split.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

Value Length(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("length", arguments, {"0"}, 1);
  const Value value = bound.Get(0);
  return Value::Int(runtime.Length(value)).From(value.source());
}

Value First(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("first", arguments, {"seq"}, 1);
  return runtime.TakeFirst(bound.Get(0)).value_or(Value::Undefined("No first item, sequence was empty."));
}

Value Last(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("last", arguments, {"seq"}, 1);
  const Value sequence = bound.Get(0);
  if (sequence.is(Kind::kIterator)) {
    throw TemplateError(fmt::format("'{}' object is not reversible", TypeName(sequence)));
  }
  const std::vector<Value> items = runtime.Iterate(sequence);
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Value List(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("list", arguments, {"value"}, 1);
  return Value::List(runtime.Iterate(bound.Get(0)));
}

Value Join(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"value", "d", "attribute"}, 1);
  const SourcedText separator = bound.Has(1) ? ToStr(runtime, bound.Get(1)) : SourcedText();
  const AttributePath path(bound.Get(2));
  SourcedText result;
  bool first = true;
  for (const Value& item : runtime.Iterate(bound.Get(0))) {
    if (!first) result.Append(separator);
    first = false;
    result.Append(ToStr(runtime, path.Resolve(runtime, item)));
    if (result.size() > kMaxOutputBytes) break;
  }
  return runtime.NewString(std::move(result));
}

Value Reverse(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("reverse", arguments, {"value"}, 1);
  const Value value = bound.Get(0);
  if (value.is_string()) {
    const std::vector<Value> characters = runtime.Iterate(value);
    SourcedText text;
    for (size_t i = characters.size(); i > 0; --i) text.Append(characters[i - 1].sourced_text());
    return runtime.NewString(std::move(text), value.is_markup());
  }
  std::vector<Value> items = runtime.Iterate(value);
  std::reverse(items.begin(), items.end());
  if (value.is(Kind::kIterator)) return Value::List(std::move(items));
  return MakeIterator("reversed", Value::List(items), [items](Runtime& /*runtime*/) { return items; });
}

const DictData& RequireDict(const Value& value, std::string_view message) {
  if (value.is(Kind::kDict)) return value.dict();
  value.RequireDefined();
  throw TemplateError(std::string(message));
}

Value Items(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("items", arguments, {"value"}, 1);
  const Value value = bound.Get(0);
  return MakeIterator("generator", value, [value](Runtime& runtime) {
    std::vector<Value> items;
    if (value.is_undefined()) return items;
    for (const auto& [key, item] : RequireDict(value, "Can only get item pairs from a mapping.").entries) {
      items.push_back(Value::Tuple({key, item}));
    }
    runtime.ChargeSteps(static_cast<int64_t>(items.size()));
    return items;
  });
}

// Sorts by keys[i] of items[i].
std::vector<Value> SortByKeys(Runtime& runtime, const std::vector<Value>& items,
                              const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  StableSort(order, [&](size_t a, size_t b) {
    return reverse ? Less(runtime, keys[b], keys[a]) : Less(runtime, keys[a], keys[b]);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

Value DictSort(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("dictsort", arguments, {"value", "case_sensitive", "by", "reverse"}, 1);
  const std::string by = bound.Has(2) ? ToStr(runtime, bound.Get(2)).bytes() : "key";
  if (by != "key" && by != "value") {
    throw TemplateError("You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, item] : RequireDict(bound.Get(0), "dictsort wants a mapping").entries) {
    const Value& sort_key = by == "key" ? key : item;
    keys.push_back(bound.Bool(1, false) ? sort_key : IgnoreCase(sort_key));
    items.push_back(Value::Tuple({key, item}));
  }
  return runtime.NewList(SortByKeys(runtime, items, keys, bound.Bool(3, false)));
}

Value Sort(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("sort", arguments, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  std::vector<AttributePath> paths;
  const Value attribute = bound.Get(3, Value::None());
  if (attribute.is_string()) {
    for (std::string_view part : SplitAt(attribute.text(), ",", -1, false)) paths.emplace_back(part);
  } else {
    paths.emplace_back(attribute);
  }
  const std::vector<Value> items = runtime.Iterate(bound.Get(0));
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      const Value part = path.Resolve(runtime, item);
      key.push_back(bound.Bool(2, false) ? part : IgnoreCase(part));
    }
    keys.push_back(Value::List(std::move(key)));
  }
  return runtime.NewList(SortByKeys(runtime, items, keys, bound.Bool(1, false)));
}

Value GroupBy(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("groupby", arguments, {"value", "attribute", "default", "case_sensitive"}, 2);
  const AttributePath path(bound.Get(1));
  const Value fallback = bound.Get(2, Value::None());
  const bool case_sensitive = bound.Bool(3, false);
  const auto key_of = [&](const Value& item) {
    const Value key = path.Resolve(runtime, item, fallback);
    return case_sensitive ? key : IgnoreCase(key);
  };
  const std::vector<Value> items = runtime.Iterate(bound.Get(0));
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) keys.push_back(key_of(item));
  std::vector<Value> groups;
  std::vector<Value> members;
  const auto close_group = [&] {
    if (members.empty()) return;
    const Value name = path.Resolve(runtime, members[0], fallback);
    groups.push_back(Value::Tuple({name, runtime.NewList(std::move(members))}, true));
    members.clear();
  };
  for (const Value& item : SortByKeys(runtime, items, keys, false)) {
    if (!members.empty() && !Equal(runtime, key_of(members[0]), key_of(item))) close_group();
    members.push_back(item);
  }
  close_group();
  return runtime.NewList(std::move(groups));
}

Value Unique(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("unique", arguments, {"value", "case_sensitive", "attribute"}, 1);
  const Value value = bound.Get(0);
  return MakeIterator(
      "generator", value,
      [value, case_sensitive = bound.Bool(1, false), path = AttributePath(bound.Get(2))](Runtime& runtime) {
        DictData seen;
        std::vector<Value> items;
        for (const Value& item : runtime.Iterate(value)) {
          const Value resolved = path.Resolve(runtime, item);
          const Value key = case_sensitive ? resolved : IgnoreCase(resolved);
          if (seen.Find(key) != nullptr) continue;
          seen.Set(key, Value::None());
          items.push_back(item);
        }
        return items;
      });
}

template <bool want_max>
Value Extreme(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound(want_max ? "max" : "min", arguments, {"value", "case_sensitive", "attribute"},
                             1);
  const AttributePath path(bound.Get(2));
  const std::vector<Value> items = runtime.Iterate(bound.Get(0));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  Value best;
  Value best_key;
  bool first = true;
  for (const Value& item : items) {
    const Value resolved = path.Resolve(runtime, item);
    const Value key = bound.Bool(1, false) ? resolved : IgnoreCase(resolved);
    if (first || (want_max ? Less(runtime, best_key, key) : Less(runtime, key, best_key))) {
      best = item;
      best_key = key;
    }
    first = false;
  }
  return best;
}

Value Sum(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("sum", arguments, {"iterable", "attribute", "start"}, 1);
  const AttributePath path(bound.Get(1));
  Value total = bound.Get(2, Value::Int(0));
  if (total.is_string()) throw TemplateError("sum() can't sum strings");
  for (const Value& item : runtime.Iterate(bound.Get(0))) {
    total = ApplyBinary(runtime, BinaryOp::kAdd, total, path.Resolve(runtime, item));
  }
  return total;
}

Value Batch(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("batch", arguments, {"value", "linecount", "fill_with"}, 2);
  const Value value = bound.Get(0);
  const Value fill = bound.Get(2, Value::None());
  const Value line_count = bound.Get(1);
  return MakeIterator("generator", Value::List({value, fill}), [value, fill, line_count](Runtime& runtime) {
    std::vector<Value> lines;
    std::vector<Value> line;
    for (const Value& item : runtime.Iterate(value)) {
      if (Equal(runtime, Value::Int(static_cast<int64_t>(line.size())), line_count)) {
        lines.push_back(runtime.NewList(std::exchange(line, {})));
      }
      line.push_back(item);
    }
    if (line.empty()) return lines;
    if (!fill.is_none()) {
      if (!line_count.is_integral()) throw TemplateError("batch wants an integer");
      const int64_t missing = line_count.integer() - static_cast<int64_t>(line.size());
      runtime.ChargeSteps(std::clamp<int64_t>(missing, 0, kMaxSteps));
      for (int64_t i = 0; i < missing; ++i) line.push_back(fill);
    }
    lines.push_back(runtime.NewList(std::move(line)));
    return lines;
  });
}

Value Slice(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("slice", arguments, {"value", "slices", "fill_with"}, 2);
  const Value value = bound.Get(0);
  const Value fill = bound.Get(2, Value::None());
  const int64_t slices = bound.Int(1, 1);
  return MakeIterator("generator", Value::List({value, fill}), [value, fill, slices](Runtime& runtime) {
    const std::vector<Value> items = runtime.Iterate(value);
    if (slices == 0) throw TemplateError("integer division or modulo by zero");
    runtime.ChargeSteps(std::clamp<int64_t>(slices, 0, kMaxSteps));
    std::vector<Value> parts;
    const auto length = static_cast<int64_t>(items.size());
    size_t next = 0;
    for (int64_t i = 0; i < slices; ++i) {
      const int64_t size = length / slices + (i < length % slices ? 1 : 0);
      std::vector<Value> part;
      for (int64_t j = 0; j < size; ++j) part.push_back(items[next++]);
      if (!fill.is_none() && i >= length % slices) part.push_back(fill);
      parts.push_back(runtime.NewList(std::move(part)));
    }
    return parts;
  });
}

}  // namespace

const FilterTable& SequenceFilters() {
  static const auto* const filters = new FilterTable{
      {"length", Length},      {"count", Length},      {"first", First},     {"last", Last},
      {"list", List},          {"join", Join},         {"reverse", Reverse}, {"items", Items},
      {"dictsort", DictSort},  {"sort", Sort},         {"groupby", GroupBy}, {"unique", Unique},
      {"min", Extreme<false>}, {"max", Extreme<true>}, {"sum", Sum},         {"batch", Batch},
      {"slice", Slice},
  };
  return *filters;
}

}  // namespace tandem::jinja
