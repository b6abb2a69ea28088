// An answer's text, taken apart while it streams: reasoning, text, calls of tools. docs/tools.md has the
// forms.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/dialect.h"

namespace tandem {

// One piece of an answer, in order.
struct AnswerPart {
  enum class Kind { kText, kReasoning, kCallBegin, kCallArguments, kCallEnd };
  Kind kind = Kind::kText;
  // Text; reasoning; the function's name (kCallBegin); a piece of the arguments' JSON (kCallArguments);
  // empty (kCallEnd).
  std::string text;

  bool operator==(const AnswerPart&) const = default;
};

// One answer's text into its parts. Not thread-safe. How the text is cut into Append calls changes only how
// the parts are cut: text, reasoning and arguments, each joined, are always the same. No part is empty but
// kCallEnd, and none ends within a UTF-8 character that is whole in the answer.
//
// Calls do not nest: kCallBegin, any number of kCallArguments, kCallEnd. A call begins once its name is known
// and is one that was offered, and what can only be its arguments has begun; until then it may still turn out
// to be text, and then is. The arguments' pieces joined are what the model wrote (for pythonic calls: their
// JSON), which is a JSON object unless the model broke its form: then they end where that was noticed, and
// what follows is text.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  // Appends to *parts what text makes certain.
  virtual void Append(std::string_view text, std::vector<AnswerPart>* parts) = 0;
  // The answer has ended, maybe amid a call, which then ends as it is. Nothing may be appended afterwards.
  virtual void Finish(std::vector<AnswerPart>* parts) = 0;
};

struct AnswerParserOptions {
  ToolFormat format = ToolFormat::kNone;
  // Whether <think>...</think> at the start of the answer is reasoning. Otherwise it is text.
  bool reasoning = false;
  // With reasoning: the prompt ended within it (PromptEndsInReasoning), or the model always begins there.
  bool starts_in_reasoning = false;
  // Names of the tools that may be called. None: no call is looked for.
  std::vector<std::string> tools;
};

std::unique_ptr<AnswerParser> MakeAnswerParser(AnswerParserOptions options);

}  // namespace tandem
