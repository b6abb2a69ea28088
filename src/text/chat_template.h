// Chat templates: the Jinja that published models' templates use, rendered as Hugging Face does
// (trim_blocks, lstrip_blocks, raise_exception, strftime_now, tojson, loop controls).
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/provenance.h"
#include "base/result.h"

namespace tandem {

// Who may speak. Templates make control tokens of these names ("<|user|>"), so they are the template's
// wherever they come from.
inline constexpr std::array<std::string_view, 6> kChatRoles = {"system",    "developer", "user",
                                                               "assistant", "tool",      "function"};

struct RenderedChat {
  std::string text;
  Provenance provenance;  // of text
};

// Immutable after Parse; Render may be called from any thread.
class ChatTemplate {
 public:
  // Errors: kInvalidArgument with the line of the template and what is wrong there.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source);
  ~ChatTemplate();
  const std::string& source() const { return source_; }

  // Two objects make the template's globals. content: what the request says ("messages", "tools",
  // chat_template_kwargs); all of it is content, but the "role" of a message that is one of kChatRoles. own:
  // what the model and its server say
  // ("bos_token", "eos_token", "add_generation_prompt"). A name in both is the request's.
  // Errors: what raise_exception said, or a type error with the template's line (kInvalidArgument).
  Result<RenderedChat> Render(const nlohmann::ordered_json& content, const nlohmann::ordered_json& own) const;

 private:
  struct Program;
  ChatTemplate(std::unique_ptr<Program> program, std::string_view source);
  std::unique_ptr<Program> program_;
  std::string source_;
};

}  // namespace tandem
