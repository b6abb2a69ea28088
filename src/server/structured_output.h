// What a request says its answer has to follow: response_format, structured_outputs, and the names that other
// servers have for the same.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "grammar/grammar_spec.h"
#include "server/api_error.h"

namespace tandem {

struct AnswerGrammar {
  GrammarSpec spec;
  std::string param;  // the field that says it
};

// *grammar: nothing if the answer is free. Error: two fields say it, or one is malformed. What the spec
// itself says is judged by the compiler. Any thread.
std::optional<ApiError> ReadAnswerGrammar(const nlohmann::ordered_json& body,
                                          std::optional<AnswerGrammar>* grammar);

// The same as the format of a structural tag, to be a part of one.
nlohmann::ordered_json StructuralFormatOf(const GrammarSpec& spec);

}  // namespace tandem
