// The walk over a schema behind json_schema_grammar.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/expression.h"
#include "grammar/json_rules.h"
#include "grammar/json_schema_document.h"

namespace tandem {

class JsonSchemaConverter {
 public:
  // root: outlives this.
  JsonSchemaConverter(const Json& root, const JsonStyle& style);
  Result<std::string> Convert();

 private:
  // Texts of values of a schema; schemas that are objects have been through FlattenSchema. at: the pointer of
  // it.
  Result<Expression> Value(const Json& schema, const std::string& at);
  Result<Expression> Flat(const Json& schema, const std::string& at);
  Result<Expression> Reference(const std::string& reference, const std::string& at);
  Result<Expression> Alternatives(const Json& schema, const std::string& keyword, const std::string& at);
  Result<Expression> Listed(const Json& schema, const std::string& at);
  // Of one type, a bit of JsonTypes, or kNumber.
  Result<Expression> Typed(unsigned type, const Json& schema, const std::string& at);
  Result<Expression> String(const Json& schema, const std::string& at);
  Expression BoundedString(const LengthRange& lengths);
  Result<Expression> Number(bool is_integer, const Json& schema, const std::string& at);
  Result<Expression> Array(const Json& schema, const std::string& at);

  // json_object_converter.cc
  struct Property {
    std::string name;
    Expression value;
    bool is_required;
  };
  // Of properties that are not named.
  struct OtherProperties {
    bool are_allowed = false;
    Expression key;
    Expression value;
  };
  Result<Expression> Object(const Json& schema, const std::string& at);
  Result<std::vector<Property>> NamedProperties(const Json& schema, const std::string& at,
                                                std::vector<std::string>& forbidden);
  Result<OtherProperties> Others(const Json& schema, const std::string& at,
                                 const std::vector<Property>& named,
                                 const std::vector<std::string>& forbidden);
  Expression Members(const std::vector<Property>& named, const OtherProperties& others, int64_t max_others,
                     bool may_be_empty);

  const Json& root_;
  JsonStyle style_;
  ExpressionGrammar grammar_;
  JsonRules rules_;
  // What has been referred to, and of that what has no rule yet: its pointer and the rule.
  std::map<const Json*, Expression> references_;
  std::map<std::pair<int64_t, int64_t>, Expression> bounded_strings_;
  struct Pending {
    const Json* schema;
    std::string at;
    Expression rule;
  };
  std::vector<Pending> pending_;
  int depth_ = 0;
  int num_schemas_ = 0;
};

}  // namespace tandem
