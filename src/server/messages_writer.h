// Answers in the form of Anthropic's Messages API.
#pragma once

#include <memory>

#include "server/answer_writer.h"

namespace tandem {

struct MessagesWriterOptions {
  bool omits_thinking = false;  // its blocks come, but empty
};

// For requests of one sequence. A stream passes arguments of calls on as the model wrote them; in a whole
// answer a call whose arguments are no JSON object is text.
std::unique_ptr<AnswerWriter> MakeMessagesWriter(const AnswerWriterContext& context,
                                                 MessagesWriterOptions options);

}  // namespace tandem
