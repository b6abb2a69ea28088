// Values of the template language: Python's None, bool, int, float, str, list, tuple, dict and the few
// objects that templates meet. Values are immutable except namespaces, iterators, loops, cyclers and joiners.
//
// Provenance. Strings know which of their characters are content (sourced_text.h), scalars whether they are.
// A character that is copied keeps its source; one that is made of others (upper, escapes) is content if any
// of them is. A scalar is content if it was given as such or computed of content: of a text's characters, of
// such a scalar. What str, repr and tojson write around values (quotes, brackets, separators of their own) is
// content. Everything else is the template's: its own text and numbers, outcomes of tests, lengths and
// positions in lists.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/sourced_text.h"

namespace tandem::jinja {

class Runtime;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kDictView,
  kIterator,
  kNamespace,
  kFunction,
  kObject,
};

// Base of everything that lives on the heap. depth: the longest chain of containers below this one, bounded
// so that printing, comparing and destroying a value never recurse without limit.
struct HeapData {
  explicit HeapData(int data_depth = 0) : depth(data_depth) {}
  HeapData(const HeapData&) = delete;
  HeapData& operator=(const HeapData&) = delete;
  virtual ~HeapData() = default;

  int depth;
};

struct StringData;
struct ListData;
struct DictData;
struct RangeData;
struct DictViewData;
struct IteratorData;
struct NamespaceData;
struct FunctionData;
struct ObjectData;

class Value {
 public:
  Value() = default;  // an Undefined without a name

  static Value None();
  static Value Bool(bool boolean);
  static Value Int(int64_t integer);
  static Value Float(double real);
  static Value String(SourcedText text, bool markup = false);
  // The template's own.
  static Value String(std::string text) { return String(SourcedText(std::move(text), Source::kTemplate)); }
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items, bool is_group = false);
  static Value Undefined(std::string message);
  static Value Dict(std::shared_ptr<DictData> dict);
  // kind must match the dynamic type of data.
  static Value Heap(Kind kind, std::shared_ptr<HeapData> data);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_list_or_tuple() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  // bool is a kind of int, as in Python.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool boolean() const { return scalar_.integer != 0; }
  int64_t integer() const { return scalar_.integer; }  // of an int or a bool
  double real() const { return scalar_.real; }         // of a float
  double AsDouble() const {
    return kind_ == Kind::kFloat ? scalar_.real : static_cast<double>(scalar_.integer);
  }

  const std::string& text() const;          // of a string: its bytes
  const SourcedText& sourced_text() const;  // of a string
  bool is_markup() const;
  const std::vector<Value>& items() const;  // of a list or a tuple
  bool is_group() const;
  const DictData& dict() const;
  const RangeData& range() const;
  const DictViewData& view() const;
  IteratorData& iterator() const;
  NamespaceData& ns() const;
  const FunctionData& function() const;
  ObjectData& object() const;
  // Of a string: content if any character is. Of what is neither a string nor a scalar: template.
  Source source() const;
  // A scalar as content if source is.
  Value From(Source source) const;
  // Throws TemplateError, with the message of an Undefined, if this is one.
  void RequireDefined() const;

  const HeapData* heap() const { return heap_.get(); }
  int depth() const { return heap_ ? heap_->depth : 0; }

 private:
  Kind kind_ = Kind::kUndefined;
  Source source_ = Source::kTemplate;  // of a scalar
  union {
    int64_t integer;
    double real;
  } scalar_ = {0};
  std::shared_ptr<HeapData> heap_;
};

// A few values in the order in which their names were first set.
struct NamedValues {
  std::vector<std::pair<std::string, Value>> entries;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  Source source_of_names = Source::kTemplate;  // content if a ** mapping brought names that are
};

using NativeFunction = std::function<Value(Runtime&, const Arguments&)>;

struct UndefinedData : HeapData {
  std::string message;
};

struct StringData : HeapData {
  SourcedText text;
  bool markup = false;
};

struct ListData : HeapData {
  std::vector<Value> items;
  bool is_group = false;  // a pair of the groupby filter: its items are also .grouper and .list
};

// Insertion-ordered. Keys compare as Python's: 1, 1.0 and true are one key.
struct DictData : HeapData {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_multimap<size_t, uint32_t> index;  // hash -> position in entries

  // An unhashable key throws TemplateError.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, Value value);
};

struct RangeData : HeapData {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t length = 0;
  Source source = Source::kTemplate;  // of its numbers
};

enum class DictViewKind : uint8_t { kKeys, kValues, kItems };

struct DictViewData : HeapData {
  DictViewKind view_kind = DictViewKind::kKeys;
  Value dict;
};

// A Python generator or iterator: its items are produced at the first use and handed out once.
struct IteratorData : HeapData {
  std::string type_name;
  std::function<std::vector<Value>(Runtime&)> produce;  // empty once it has run
  std::vector<Value> items;
  size_t next = 0;
};

struct NamespaceData : HeapData {
  NamedValues attributes;
};

struct FunctionData : HeapData {
  std::string name;
  NativeFunction call;
  NamedValues attributes;
};

// An object with attributes of its own: the loop variable, a cycler.
struct ObjectData : HeapData, std::enable_shared_from_this<ObjectData> {
  virtual std::string Describe() const = 0;
  virtual std::optional<Value> Attribute(Runtime& runtime, std::string_view name) = 0;
  virtual std::optional<Value> Call(Runtime& runtime, const Arguments& arguments) = 0;
  virtual std::optional<int64_t> Length() const { return std::nullopt; }
};

inline constexpr int kMaxValueDepth = 200;

// 1 + the depth of the deepest child; throws TemplateError past kMaxValueDepth.
int ContainerDepth(const std::vector<Value>& items);
int ContainerDepth(const Value& item);

Value MakeFunction(std::string name, NativeFunction call, const Value& self = Value());
Value MakeIterator(std::string type_name, const Value& source,
                   std::function<std::vector<Value>(Runtime&)> produce);

// Python's type name, for messages: "str", "list", ...
std::string_view TypeName(const Value& value);
// Python's hash classes; unhashable values throw TemplateError.
size_t HashValue(const Value& value);
// Equality of two hashable keys.
bool KeysEqual(const Value& a, const Value& b);
bool IsTruthy(const Value& value);

}  // namespace tandem::jinja
