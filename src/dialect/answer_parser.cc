#include "dialect/answer_parser.h"

#include <utility>

#include "dialect/call_parser.h"
#include "dialect/reasoning_parser.h"

namespace tandem {

std::unique_ptr<AnswerParser> MakeAnswerParser(AnswerParserOptions options) {
  std::unique_ptr<CallSyntax> syntax;
  if (options.format != ToolFormat::kNone && !options.tools.empty()) {
    syntax = MakeCallSyntax(options.format, std::move(options.tools));
  }
  std::unique_ptr<AnswerParser> parser = std::make_unique<CallParser>(std::move(syntax));
  if (options.reasoning) {
    parser = std::make_unique<ReasoningParser>(options.starts_in_reasoning, std::move(parser));
  }
  return std::make_unique<WholeCharacters>(std::move(parser));
}

}  // namespace tandem
