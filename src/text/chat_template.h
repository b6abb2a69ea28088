// Chat templates: the Jinja that published models' templates use, rendered as Hugging Face does
// (trim_blocks, lstrip_blocks, raise_exception, strftime_now, tojson, loop controls).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

// Immutable after Parse; Render may be called from any thread.
class ChatTemplate {
 public:
  // Errors: kInvalidArgument with the line of the template and what is wrong there.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source);
  ~ChatTemplate();

  // variables: an object; the template's globals: "messages", "tools", "add_generation_prompt", "bos_token",
  // "eos_token" and whatever else the caller passes (chat_template_kwargs).
  // Errors: what raise_exception said, or a type error with the template's line (kInvalidArgument).
  Result<std::string> Render(const nlohmann::ordered_json& variables) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace tandem
