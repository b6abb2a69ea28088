#include "jinja/value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "jinja/error.h"

namespace tandem::jinja {
namespace {

// Below this size a scan is faster than the index.
constexpr size_t kIndexedDictEntries = 16;

// Tuples that share their parts can be exponentially larger than their memory.
constexpr int kMaxHashedItems = 1'000'000;

size_t HashBounded(const Value& value, int& budget) {
  if (--budget < 0) throw TemplateError("dictionary key too large");
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>()(static_cast<double>(value.integer()));
    case Kind::kFloat:
      return std::hash<double>()(value.real());
    case Kind::kString:
      return std::hash<std::string>()(value.text());
    case Kind::kNone:
      return 0x517cc1b7;
    case Kind::kUndefined:
      return 0x27220a95;
    case Kind::kTuple: {
      size_t hash = 0x9e3779b9;
      for (const Value& item : value.items()) hash = hash * 1000003 + HashBounded(item, budget);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kNamespace:
      throw TemplateError("unhashable type: '" + std::string(TypeName(value)) + "'");
    default:
      return std::hash<const void*>()(value.heap());
  }
}

}  // namespace

int ContainerDepth(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth >= kMaxValueDepth) throw TemplateError("value nested too deeply");
  return depth + 1;
}

int ContainerDepth(const Value& item) {
  if (item.depth() >= kMaxValueDepth) throw TemplateError("value nested too deeply");
  return item.depth() + 1;
}

Value Value::None() {
  Value value;
  value.kind_ = Kind::kNone;
  return value;
}

Value Value::Bool(bool boolean) {
  Value value;
  value.kind_ = Kind::kBool;
  value.scalar_.integer = boolean ? 1 : 0;
  return value;
}

Value Value::Int(int64_t integer) {
  Value value;
  value.kind_ = Kind::kInt;
  value.scalar_.integer = integer;
  return value;
}

Value Value::Float(double real) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.scalar_.real = real;
  return value;
}

Value Value::String(SourcedText text, bool markup) {
  auto data = std::make_shared<StringData>();
  data->text = std::move(text);
  data->markup = markup;
  return Heap(Kind::kString, std::move(data));
}

Value Value::List(std::vector<Value> items) {
  auto data = std::make_shared<ListData>();
  data->depth = ContainerDepth(items);
  data->items = std::move(items);
  return Heap(Kind::kList, std::move(data));
}

Value Value::Tuple(std::vector<Value> items, bool is_group) {
  Value value = List(std::move(items));
  static_cast<ListData&>(*value.heap_).is_group = is_group;
  value.kind_ = Kind::kTuple;
  return value;
}

Value Value::Undefined(std::string message) {
  auto data = std::make_shared<UndefinedData>();
  data->message = std::move(message);
  return Heap(Kind::kUndefined, std::move(data));
}

Value Value::Dict(std::shared_ptr<DictData> dict) {
  int depth = 0;
  for (const auto& [key, item] : dict->entries) depth = std::max({depth, key.depth(), item.depth()});
  if (depth >= kMaxValueDepth) throw TemplateError("value nested too deeply");
  dict->depth = depth + 1;
  return Heap(Kind::kDict, std::move(dict));
}

Value Value::Heap(Kind kind, std::shared_ptr<HeapData> data) {
  Value value;
  value.kind_ = kind;
  value.heap_ = std::move(data);
  return value;
}

const std::string& Value::text() const {
  TANDEM_CHECK(kind_ == Kind::kString, "text() of a {}", TypeName(*this));
  return static_cast<const StringData&>(*heap_).text.bytes();
}

const SourcedText& Value::sourced_text() const {
  TANDEM_CHECK(kind_ == Kind::kString, "sourced_text() of a {}", TypeName(*this));
  return static_cast<const StringData&>(*heap_).text;
}

Source Value::source() const {
  return kind_ == Kind::kString ? sourced_text().source() : source_;
}

Value Value::From(Source source) const {
  Value value = *this;
  if (is_number() || is_none()) value.source_ = source;
  return value;
}

bool Value::is_markup() const {
  return kind_ == Kind::kString && static_cast<const StringData&>(*heap_).markup;
}

const std::vector<Value>& Value::items() const {
  TANDEM_CHECK(is_list_or_tuple(), "items() of a {}", TypeName(*this));
  return static_cast<const ListData&>(*heap_).items;
}

bool Value::is_group() const {
  return is_list_or_tuple() && static_cast<const ListData&>(*heap_).is_group;
}

const DictData& Value::dict() const {
  TANDEM_CHECK(kind_ == Kind::kDict, "dict() of a {}", TypeName(*this));
  return static_cast<const DictData&>(*heap_);
}

const RangeData& Value::range() const {
  TANDEM_CHECK(kind_ == Kind::kRange, "range() of a {}", TypeName(*this));
  return static_cast<const RangeData&>(*heap_);
}

const DictViewData& Value::view() const {
  TANDEM_CHECK(kind_ == Kind::kDictView, "view() of a {}", TypeName(*this));
  return static_cast<const DictViewData&>(*heap_);
}

IteratorData& Value::iterator() const {
  TANDEM_CHECK(kind_ == Kind::kIterator, "iterator() of a {}", TypeName(*this));
  return static_cast<IteratorData&>(*heap_);
}

NamespaceData& Value::ns() const {
  TANDEM_CHECK(kind_ == Kind::kNamespace, "ns() of a {}", TypeName(*this));
  return static_cast<NamespaceData&>(*heap_);
}

const FunctionData& Value::function() const {
  TANDEM_CHECK(kind_ == Kind::kFunction, "function() of a {}", TypeName(*this));
  return static_cast<const FunctionData&>(*heap_);
}

ObjectData& Value::object() const {
  TANDEM_CHECK(kind_ == Kind::kObject, "object() of a {}", TypeName(*this));
  return static_cast<ObjectData&>(*heap_);
}

void Value::RequireDefined() const {
  if (!is_undefined()) return;
  throw TemplateError(heap_ ? static_cast<const UndefinedData&>(*heap_).message : "value is undefined");
}

const Value* DictData::Find(const Value& key) const {
  const size_t hash = HashValue(key);
  if (entries.size() <= kIndexedDictEntries) {
    for (const auto& [name, value] : entries) {
      if (KeysEqual(name, key)) return &value;
    }
    return nullptr;
  }
  const auto [first, last] = index.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (KeysEqual(entries[it->second].first, key)) return &entries[it->second].second;
  }
  return nullptr;
}

const Value* DictData::Find(std::string_view key) const {
  if (entries.size() > kIndexedDictEntries) return Find(Value::String(std::string(key)));
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

void DictData::Set(const Value& key, Value value) {
  if (const Value* found = Find(key)) {
    *const_cast<Value*>(found) = std::move(value);  // points into this->entries
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kIndexedDictEntries + 1) {
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(HashValue(entries[i].first), i);
  } else if (entries.size() > kIndexedDictEntries) {
    index.emplace(HashValue(key), entries.size() - 1);
  }
}

const Value* NamedValues::Find(std::string_view name) const {
  for (const auto& [key, value] : entries) {
    if (key == name) return &value;
  }
  return nullptr;
}

void NamedValues::Set(std::string_view name, Value value) {
  if (const Value* found = Find(name)) {
    *const_cast<Value*>(found) = std::move(value);  // points into this->entries
  } else {
    entries.emplace_back(name, std::move(value));
  }
}

Value MakeFunction(std::string name, NativeFunction call, const Value& self) {
  auto data = std::make_shared<FunctionData>();
  data->depth = ContainerDepth(self);
  data->name = std::move(name);
  data->call = std::move(call);
  return Value::Heap(Kind::kFunction, std::move(data));
}

Value MakeIterator(std::string type_name, const Value& source,
                   std::function<std::vector<Value>(Runtime&)> produce) {
  auto data = std::make_shared<IteratorData>();
  data->depth = ContainerDepth(source);
  data->type_name = std::move(type_name);
  data->produce = std::move(produce);
  return Value::Heap(Kind::kIterator, std::move(data));
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kDictView:
      switch (value.view().view_kind) {
        case DictViewKind::kKeys:
          return "dict_keys";
        case DictViewKind::kValues:
          return "dict_values";
        case DictViewKind::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kIterator:
      return value.iterator().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kObject:
      return "object";
  }
  return "object";
}

size_t HashValue(const Value& value) {
  int budget = kMaxHashedItems;
  return HashBounded(value, budget);
}

bool KeysEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return a.AsDouble() == b.AsDouble();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kTuple:
      return a.heap() == b.heap() ||
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), KeysEqual);
    case Kind::kNone:
    case Kind::kUndefined:
      return true;
    default:
      return a.heap() == b.heap();
  }
}

bool IsTruthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0.0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kRange:
      return value.range().length != 0;
    case Kind::kDictView:
      return !value.view().dict.dict().entries.empty();
    case Kind::kObject:
      return value.object().Length().value_or(1) != 0;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kFunction:
      return true;
  }
  return true;
}

}  // namespace tandem::jinja
