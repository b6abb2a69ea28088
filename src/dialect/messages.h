// What a chat template can render, and messages made such.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace tandem {

// What a template does with messages that not all templates take. Found by rendering small conversations.
struct TemplateHabits {
  bool has_system = true;          // a system message in front is shown
  bool has_later_system = true;    // and one further behind
  bool has_developer = false;      // the role developer is shown under its own name
  bool may_repeat_roles = true;    // two user messages may follow each other
  bool has_parallel_calls = true;  // a message may have several tool_calls
};

// own: as for ChatTemplate::Render; add_generation_prompt is set.
TemplateHabits FindTemplateHabits(const ChatTemplate& chat_template, const nlohmann::ordered_json& own);

// The messages as a template with these habits can render them, in this order:
// - developer becomes system where the template does not know it.
// - A system message that is not in front, where the template refuses or drops such: its text moves to the
// end
//   of the first one. So it keeps its authority, which a user's message could forge, and loses its place.
// - Where there is no system at all, its text goes before that of the first user message.
// - Arguments of tool_calls that are JSON text become the object, which templates expect.
// - Several tool_calls in a message, where the template takes one: a message for each, followed by its
// result.
// - Messages of the same role in a row, where roles must alternate: their texts are joined.
// Messages whose content is neither a string nor a list of parts keep it.
nlohmann::ordered_json NormalizeMessages(const nlohmann::ordered_json& messages,
                                         const TemplateHabits& habits);

// Ids of calls as Mistral's templates demand them, nine letters and digits: others are replaced, the same id
// always by the same.
std::string ShortCallId(std::string_view id);
nlohmann::ordered_json WithShortCallIds(const nlohmann::ordered_json& messages);

}  // namespace tandem
