// The rules that grammars of JSON share: white space, strings, values without a schema.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grammar/expression.h"
#include "grammar/json_schema_grammar.h"

namespace tandem {

class JsonRules {
 public:
  // Adds rules to grammar, which outlives this.
  JsonRules(ExpressionGrammar& grammar, const JsonStyle& style);

  const Expression& any() const { return any_; }
  const Expression& object() const { return object_; }
  const Expression& array() const { return array_; }
  const Expression& string() const { return string_; }
  const Expression& space() const {
    return space_;
  }  // before a closing bracket or an opening one's first value
  const Expression& comma() const { return comma_; }
  const Expression& colon() const { return colon_; }

  // `{`, the inside, `}`.
  Expression Braced(Expression inside, const char* open, const char* close) const;
  // min to max times what, with commas between them.
  Expression List(const Expression& what, int64_t min, int64_t max) const;
  // Strings, without escapes, that are none of names; of those that begin like them, not all.
  Expression StringExcept(const std::vector<std::string>& names);

 private:
  struct Trie;
  Expression AfterPrefix(const Trie& node);

  ExpressionGrammar& grammar_;
  Expression space_, comma_, colon_, string_, plain_rest_, any_, object_, array_;
};

}  // namespace tandem
