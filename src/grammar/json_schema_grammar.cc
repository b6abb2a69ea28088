#include "grammar/json_schema_grammar.h"

#include "grammar/json_rules.h"
#include "grammar/json_schema_converter.h"
#include "grammar/json_schema_document.h"
#include "grammar/json_schema_places.h"

namespace tandem {

Result<std::string> GrammarOfJsonSchema(std::string_view schema, const JsonStyle& style) {
  TANDEM_ASSIGN_OR_RETURN(const Json root, ParseJsonText(schema, "JSON schema"));
  Result<std::string> grammar = JsonSchemaConverter(root, style).Convert();
  if (!grammar.ok()) return WithPlaceOfKeyword(root, grammar.error());
  return grammar;
}

std::string GrammarOfJsonObjects(const JsonStyle& style) {
  ExpressionGrammar grammar;
  const JsonRules rules(grammar, style);
  return grammar.Print(rules.object());
}

}  // namespace tandem
