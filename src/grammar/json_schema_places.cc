#include "grammar/json_schema_places.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/json_schema_keywords.h"

namespace tandem {
namespace {

const std::set<std::string_view> kKeywordsOfOneSchema = {
    "additionalItems", "additionalProperties", "items",
    "propertyNames",   "unevaluatedItems",     "unevaluatedProperties"};
const std::set<std::string_view> kKeywordsOfSchemas = {
    "allOf", "anyOf", "items", "oneOf", "patternProperties", "prefixItems", "properties"};

// The schemas that the whole one is made of, along references, each once.
class SchemaWalk {
 public:
  explicit SchemaWalk(const Json& root) : root_(root) { Add(root, "#"); }

  // The errors of their keywords.
  std::vector<Error> Errors() {
    std::vector<Error> errors;
    while (!pending_.empty()) {
      const auto [schema, at] = std::move(pending_.back());
      pending_.pop_back();
      if (Status status = CheckKeywords(*schema, at); !status.ok()) errors.push_back(status.error());
      AddParts(*schema, at);
    }
    return errors;
  }

 private:
  void Add(const Json& schema, std::string at) {
    if (schema.is_object() && known_.insert(&schema).second) pending_.emplace_back(&schema, std::move(at));
  }
  void AddParts(const Json& schema, const std::string& at) {
    for (const auto& [keyword, value] : schema.items()) {
      const std::string value_at = JoinPointer(at, keyword);
      if (keyword == "$ref" && value.is_string()) {
        const auto& reference = value.get_ref<const std::string&>();
        if (const auto target = ResolveReference(root_, reference, at); target.ok()) Add(**target, reference);
      } else if (value.is_array() && kKeywordsOfSchemas.contains(keyword)) {
        for (size_t i = 0; i < value.size(); ++i) Add(value[i], JoinPointer(value_at, i));
      } else if (kKeywordsOfOneSchema.contains(keyword)) {
        Add(value, value_at);
      } else if (value.is_object() && kKeywordsOfSchemas.contains(keyword)) {
        for (const auto& [name, part] : value.items()) Add(part, JoinPointer(value_at, name));
      }
    }
  }

  const Json& root_;
  std::set<const Json*> known_;
  std::vector<std::pair<const Json*, std::string>> pending_;
};

// From the last part of the pointer on: "not: this keyword is not supported".
std::string_view WithoutPlace(std::string_view message) {
  const std::string_view pointer = message.substr(0, message.find(": "));
  return message.substr(std::min(message.size(), pointer.rfind('/') + 1));
}

}  // namespace

Error WithPlaceOfKeyword(const Json& root, Error error) {
  const std::vector<Error> all = SchemaWalk(root).Errors();
  const Error* same = nullptr;
  for (const Error& other : all) {
    if (other.message == error.message) return error;
    if (WithoutPlace(other.message) == WithoutPlace(error.message)) same = &other;
  }
  return same == nullptr ? error : *same;
}

}  // namespace tandem
