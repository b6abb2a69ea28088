// What xgrammar asks of the program that it is part of; compiled into its library (cmake/xgrammar.cmake).
// Nothing is printed: what is wrong is in the error that a caller gets.
#include <json_schema_converter.h>
#include <lark_converter.h>
#include <regex_converter.h>
#include <support/logging.h>

#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace xgrammar {

void LogFatalImpl(const std::string& file, int lineno, const std::string& message) {
  // Of this type because xgrammar itself catches some; its constructor uses std::localtime.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  throw LogFatalError(file, lineno, message, 0);
}

void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int /*level*/,
                    const std::string& /*message*/) {}

// NOLINTBEGIN(performance-unnecessary-value-param): the declarations are xgrammar's.
// These converters are left out of the build: nobody calls them. Schemas and regular expressions become
// grammars in json_schema_grammar.h and regex_parser.h.

Grammar LarkToGrammar(const std::string& /*lark_string*/,
                      const std::optional<TokenizerInfo>& /*tokenizer_info*/,
                      const std::vector<NamedGrammar>& /*named_grammars*/) {
  throw std::runtime_error("grammars in Lark's syntax are not supported");
}

Grammar JSONSchemaToGrammar(const std::string& /*schema*/, bool /*any_whitespace*/,
                            std::optional<int> /*indent*/,
                            std::optional<std::pair<std::string, std::string>> /*separators*/,
                            bool /*strict_mode*/, std::optional<int> /*max_whitespace_cnt*/,
                            bool /*any_order*/, JSONFormat /*json_format*/,
                            std::vector<std::string> /*excludes*/) {
  throw std::runtime_error("schemas in this place are not supported");
}

std::optional<JSONFormat> JSONFormatFromString(const std::string& /*format*/) {
  return std::nullopt;
}

std::string RegexToEBNF(const std::string& /*regex*/, bool /*with_rule_name*/) {
  throw std::runtime_error("regular expressions in this place are not supported");
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace xgrammar
