#include "grammar/json_schema_grammar.h"

#include "grammar/json_rules.h"
#include "grammar/json_schema_converter.h"
#include "grammar/json_schema_document.h"

namespace tandem {

Result<std::string> GrammarOfJsonSchema(std::string_view schema, const JsonStyle& style) {
  TANDEM_ASSIGN_OR_RETURN(const Json root, ParseJsonText(schema, "JSON schema"));
  return JsonSchemaConverter(root, style).Convert();
}

std::string GrammarOfJsonObjects(const JsonStyle& style) {
  ExpressionGrammar grammar;
  const JsonRules rules(grammar, style);
  return grammar.Print(rules.object());
}

}  // namespace tandem
