// Splits template source into tokens, with Jinja's white-space rules for trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::jinja {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;  // of a string: its value; of an operator or name: its spelling
  int64_t integer = 0;
  double real = 0;
  int line = 1;

  bool IsName(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool IsOperator(std::string_view symbol) const { return type == TokenType::kOperator && text == symbol; }
};

// The last token is kEnd. Throws TemplateError with the line.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace tandem::jinja
