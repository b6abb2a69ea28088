#include "dialect/call_syntax.h"

#include <utility>

#include "base/check.h"
#include "dialect/json_call.h"
#include "dialect/mistral_call.h"
#include "dialect/pythonic_call.h"

namespace tandem {

std::unique_ptr<CallSyntax> MakeCallSyntax(ToolFormat format, std::vector<std::string> tools) {
  const CallObjectRules lenient = {.arguments_may_lack = true, .any_keys = true};
  JsonBlockForm form;
  switch (format) {
    case ToolFormat::kNone:
      TANDEM_CHECK(false, "no calls, so they have no syntax");
      break;
    case ToolFormat::kHermes:
    // A model that never learned the markers leaves them out at times.
    case ToolFormat::kGeneric:
      form = {.opening = {kToolCallBegin},
              .closing = kToolCallEnd,
              .bare_at_start = format == ToolFormat::kGeneric,
              .marked = lenient};
      break;
    case ToolFormat::kPythonic:
      return std::make_unique<PythonicSyntax>(std::move(tools));
    case ToolFormat::kMistral:
    case ToolFormat::kMistralArgs:
      return std::make_unique<MistralSyntax>(std::move(tools));
    case ToolFormat::kLlamaJson:
      form = {.opening = {kPythonTag}, .bare_at_start = true, .marked = lenient};
      break;
  }
  return std::make_unique<JsonBlockSyntax>(std::move(form), std::move(tools));
}

}  // namespace tandem
