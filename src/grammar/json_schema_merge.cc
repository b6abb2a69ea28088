#include "grammar/json_schema_merge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "grammar/json_schema_keywords.h"

namespace tandem {
namespace {

constexpr int kMaxReferences = 32;
constexpr int kMaxMergeSteps = 20'000;
// Beside an `allOf` that no document has: what two schemas say of one property.
constexpr const char* kMergedHere = "x-merged-here";

Error CannotCombine(std::string_view at, std::string_view keyword) {
  return MakeError(ErrorCode::kUnsupported, "{}: schemas that hold together cannot be combined in their `{}`",
                   at, keyword);
}

bool HasKey(const Json& schema, std::string_view key) {
  return schema.contains(std::string(key));
}

// `additionalProperties` and the like are about what the `properties` beside them leave.
bool RestrictsOthers(const Json& schema) {
  const auto additional = schema.find("additionalProperties");
  return (additional != schema.end() && *additional != true) || schema.contains("patternProperties") ||
         schema.contains("unevaluatedProperties");
}
bool NamesOnlyThoseOf(const Json& schema, const Json& other) {
  if (!schema.contains("properties")) return true;
  const Json& names = schema["properties"];
  return std::ranges::all_of(names.items(), [&](const auto& item) {
    return other.contains("properties") && other["properties"].contains(item.key());
  });
}

Json TypeNames(unsigned types) {
  Json names = Json::array();
  const std::pair<unsigned, const char*> all[] = {
      {kNull, "null"}, {kBoolean, "boolean"}, {kString, "string"}, {kArray, "array"}, {kObject, "object"}};
  for (const auto& [type, name] : all)
    if (types & type) names.push_back(name);
  if ((types & kNumber) == kNumber) {
    names.push_back("number");
  } else if (types & kInteger) {
    names.push_back("integer");
  }
  return names;
}

// Each value of the one is compared with each of the other.
bool AreFew(const Json& first, const Json& second) {
  return first.size() * second.size() <= 200'000;
}
Json SharedValues(const Json& first, const Json& second) {
  Json shared = Json::array();
  for (const Json& value : first)
    if (std::ranges::find(second, value) != second.end()) shared.push_back(value);
  return shared;
}

// The value of a keyword that both have.
Result<Json> MergeKeyword(const std::string& keyword, const Json& a, const Json& b, std::string_view at) {
  if (a == b) return a;
  if (keyword == "type") {
    const unsigned types = TypesOf({{"type", a}}) & TypesOf({{"type", b}});
    if (types == 0 || types == kFraction) return CannotCombine(at, keyword);
    return TypeNames(types);
  }
  if (keyword == "required") {
    Json all = a;
    for (const Json& name : b)
      if (std::ranges::find(all, name) == all.end()) all.push_back(name);
    return all;
  }
  if (keyword == "properties") {
    Json all = a;
    for (const auto& [name, schema] : b.items()) {
      if (all.contains(name) && all[name] != schema) {
        all[name] = Json{{"allOf", Json::array({all[name], schema})}, {kMergedHere, true}};
      } else {
        all[name] = schema;
      }
    }
    return all;
  }
  if (keyword == "enum") {
    Json shared = AreFew(a, b) ? SharedValues(a, b) : Json::array();
    if (shared.empty()) return CannotCombine(at, keyword);
    return shared;
  }
  if (a.is_number() && b.is_number()) {
    if (keyword.starts_with("min") || keyword == "exclusiveMinimum") return std::max(a, b);
    if (keyword.starts_with("max") || keyword == "exclusiveMaximum") return std::min(a, b);
  }
  return CannotCombine(at, keyword);
}

// The schema that a chain of sole references leads to; null if it leads nowhere.
const Json* Follow(const Json& root, const Json& schema) {
  const Json* target = &schema;
  for (int i = 0; i < kMaxReferences; ++i) {
    if (!target->is_object() || !target->contains("$ref")) return target;
    for (const auto& item : target->items())
      if (item.key() != "$ref" && !IsAnnotation(item.key())) return nullptr;
    const auto next = ResolveReference(root, (*target)["$ref"].get<std::string>(), "");
    if (!next.ok()) return nullptr;
    target = *next;
  }
  return nullptr;
}

// The values that a schema lists, null if it does not.
Json ListedValues(const Json& root, const Json& schema) {
  const Json* target = Follow(root, schema);
  if (target == nullptr || !target->is_object()) return nullptr;
  if (target->contains("const")) return Json::array({(*target)["const"]});
  if (target->contains("enum") && (*target)["enum"].is_array()) return (*target)["enum"];
  return nullptr;
}

bool ShareNoValue(const Json& a, const Json& b) {
  return a.is_array() && b.is_array() && AreFew(a, b) && SharedValues(a, b).empty();
}

// What merging may cost: schemas may refer to each other in circles, and to the same ones many times.
struct MergeWork {
  int depth = 0;
  int num_steps = 0;
};

class MergeDepth {
 public:
  explicit MergeDepth(MergeWork* work) : work_(work) {
    ++work_->depth;
    ++work_->num_steps;
  }
  ~MergeDepth() { --work_->depth; }
  MergeDepth(const MergeDepth&) = delete;
  MergeDepth& operator=(const MergeDepth&) = delete;
  bool TooMuch() const { return work_->depth > kMaxReferences || work_->num_steps > kMaxMergeSteps; }

 private:
  MergeWork* work_;
};

// At least the types that values of the schema may have.
unsigned PossibleTypes(const Json& root, const Json& schema, MergeWork* work) {
  const MergeDepth depth(work);
  const Json* target = Follow(root, schema);
  if (target == nullptr || depth.TooMuch()) return kAllTypes;
  if (target->is_boolean()) return *target == true ? kAllTypes : 0U;
  const bool has_type = target->contains("type") && CheckKeywords(Json{{"type", (*target)["type"]}}, "").ok();
  unsigned types = has_type ? TypesOf(*target) : kAllTypes;
  if (const Json values = ListedValues(root, *target); values.is_array()) {
    unsigned listed = 0;
    for (const Json& value : values) listed |= TypeOfValue(value);
    types &= listed;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!target->contains(keyword) || !(*target)[keyword].is_array()) continue;
    unsigned any = 0;
    for (const Json& branch : (*target)[keyword]) any |= PossibleTypes(root, branch, work);
    types &= any;
  }
  return types;
}

unsigned PossibleTypes(const Json& root, const Json& schema) {
  constexpr int kSteps = 1'000;
  MergeWork work{.num_steps = kMaxMergeSteps - kSteps};
  return PossibleTypes(root, schema, &work);
}

// A property that the first requires tells the two apart.
bool TellsApart(const Json& root, const Json& first, const Json& second) {
  if (!first.contains("required") || !first["required"].is_array()) return false;
  const Json none = Json::object();
  const Json& firsts = first.contains("properties") ? first["properties"] : none;
  const Json& seconds = second.contains("properties") ? second["properties"] : none;
  const bool forbids_others = second.contains("additionalProperties") &&
                              second["additionalProperties"] == false &&
                              !second.contains("patternProperties");
  return std::ranges::any_of(first["required"], [&](const Json& name) {
    if (!name.is_string()) return false;
    const auto key = name.get<std::string>();
    if (!seconds.contains(key)) return forbids_others;
    if (seconds[key] == false) return true;
    if (!firsts.contains(key)) return false;
    return (PossibleTypes(root, firsts[key]) & PossibleTypes(root, seconds[key])) == 0 ||
           ShareNoValue(ListedValues(root, firsts[key]), ListedValues(root, seconds[key]));
  });
}

Result<Json> Merge(const Json& root, const Json& first, const Json& second, std::string_view at,
                   MergeWork* work);

Result<Json> Flatten(const Json& root, const Json& schema, std::string_view at, MergeWork* work) {
  const MergeDepth depth(work);
  if (depth.TooMuch())
    return MakeError(ErrorCode::kUnsupported, "{}: the references in `allOf` have no end, or are too many",
                     at);
  if (!schema.is_object()) return schema;
  TANDEM_RETURN_IF_ERROR(CheckKeywords(schema, at));
  Json flat = Json::object();
  for (const auto& [keyword, value] : schema.items())
    if (!IsAnnotation(keyword) && keyword != "allOf" && keyword != "$ref") flat[keyword] = value;
  if (schema.contains("$ref")) {
    const auto reference = schema["$ref"].get<std::string>();
    TANDEM_ASSIGN_OR_RETURN(const Json* target, ResolveReference(root, reference, at));
    if (flat.empty() && !schema.contains("allOf")) return Json{{"$ref", reference}};
    TANDEM_ASSIGN_OR_RETURN(const Json other, Flatten(root, *target, reference, work));
    TANDEM_ASSIGN_OR_RETURN(flat, Merge(root, flat, other, at, work));
  }
  if (schema.contains("allOf")) {
    const Json& parts = schema["allOf"];
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string part_at =
          schema.contains(kMergedHere) ? std::string(at) : JoinPointer(JoinPointer(at, "allOf"), i);
      TANDEM_ASSIGN_OR_RETURN(const Json part, Flatten(root, parts[i], part_at, work));
      // Alone it can stay a reference, which may lead back here.
      if (flat.empty() && parts.size() == 1) return part;
      TANDEM_ASSIGN_OR_RETURN(flat, Merge(root, flat, part, part_at, work));
    }
  }
  return flat;
}

// A reference that has to be combined with something.
Result<Json> Inlined(const Json& root, const Json& schema, std::string_view at, MergeWork* work) {
  Json inlined = schema;
  for (int i = 0; inlined.is_object() && inlined.contains("$ref"); ++i) {
    if (i > kMaxReferences) return MakeError(ErrorCode::kUnsupported, "{}: the references have no end", at);
    const auto reference = inlined["$ref"].get<std::string>();
    TANDEM_ASSIGN_OR_RETURN(const Json* target, ResolveReference(root, reference, at));
    TANDEM_ASSIGN_OR_RETURN(inlined, Flatten(root, *target, reference, work));
  }
  return inlined;
}

Result<Json> Merge(const Json& root, const Json& first, const Json& second, std::string_view at,
                   MergeWork* work) {
  TANDEM_ASSIGN_OR_RETURN(const Json a, Inlined(root, first, at, work));
  TANDEM_ASSIGN_OR_RETURN(const Json b, Inlined(root, second, at, work));
  if (a == false || b == false) return Json(false);
  if (a == true || a.empty()) return b;
  if (b == true || b.empty()) return a;
  if ((RestrictsOthers(a) && !NamesOnlyThoseOf(b, a)) || (RestrictsOthers(b) && !NamesOnlyThoseOf(a, b)))
    return CannotCombine(at, "additionalProperties");
  if (RestrictsOthers(a) != RestrictsOthers(b) &&
      (HasKey(a, "patternProperties") || HasKey(b, "patternProperties")))
    return CannotCombine(at, "patternProperties");
  for (const char* keyword : {"prefixItems", "additionalItems", "items"})
    if (HasKey(a, "prefixItems") != HasKey(b, "prefixItems") && (HasKey(a, keyword) && HasKey(b, keyword)))
      return CannotCombine(at, keyword);
  if ((HasKey(a, "prefixItems") && !HasKey(b, "prefixItems") && HasKey(b, "items")) ||
      (HasKey(b, "prefixItems") && !HasKey(a, "prefixItems") && HasKey(a, "items")))
    return CannotCombine(at, "items");
  if (HasKey(a, "unevaluatedItems") || HasKey(b, "unevaluatedItems"))
    return CannotCombine(at, "unevaluatedItems");
  Json merged = a;
  for (const auto& [keyword, value] : b.items()) {
    if (!merged.contains(keyword)) {
      merged[keyword] = value;
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(merged[keyword], MergeKeyword(keyword, merged[keyword], value, at));
  }
  return merged;
}

}  // namespace

Result<Json> FlattenSchema(const Json& root, const Json& schema, std::string_view at) {
  MergeWork work;
  return Flatten(root, schema, at, &work);
}

Result<Json> MergeSchemas(const Json& root, const Json& first, const Json& second, std::string_view at) {
  MergeWork work;
  return Merge(root, first, second, at, &work);
}

bool AreDisjoint(const Json& root, const Json& first, const Json& second) {
  const unsigned shared = PossibleTypes(root, first) & PossibleTypes(root, second);
  if (shared == 0) return true;
  if (ShareNoValue(ListedValues(root, first), ListedValues(root, second))) return true;
  const Json* a = Follow(root, first);
  const Json* b = Follow(root, second);
  if (a == nullptr || b == nullptr || !a->is_object() || !b->is_object()) return false;
  return shared == kObject && (TellsApart(root, *a, *b) || TellsApart(root, *b, *a));
}

Result<bool> Admits(const Json& schema, const Json& value, std::string_view at) {
  if ((TypesOf(schema) & TypeOfValue(value)) == 0) return false;
  for (const auto& [keyword, bound] : schema.items()) {
    if ((TypesOfKeyword(keyword) & TypeOfValue(value)) == 0) continue;
    bool fine = true;
    if (keyword == "minimum") {
      fine = value >= bound;
    } else if (keyword == "maximum") {
      fine = value <= bound;
    } else if (keyword == "exclusiveMinimum" && bound.is_number()) {
      fine = value > bound;
    } else if (keyword == "exclusiveMaximum" && bound.is_number()) {
      fine = value < bound;
    } else if (keyword == "minLength" || keyword == "maxLength") {
      const auto text = value.get<std::string>();
      const int64_t length = std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
      fine = keyword == "minLength" ? length >= bound : length <= bound;
    } else if (keyword == "minItems" || keyword == "minProperties") {
      fine = value.size() >= bound;
    } else if (keyword == "maxItems" || keyword == "maxProperties") {
      fine = value.size() <= bound;
    } else if (keyword == "required") {
      fine = std::ranges::all_of(bound,
                                 [&](const Json& name) { return value.contains(name.get<std::string>()); });
    } else {
      return MakeError(ErrorCode::kUnsupported, "{}: this keyword beside `enum` or `const` is not supported",
                       JoinPointer(at, keyword));
    }
    if (!fine) return false;
  }
  return true;
}

}  // namespace tandem
