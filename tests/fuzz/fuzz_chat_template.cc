// A chat template from a model's file, rendered over a conversation with tools.
#include <nlohmann/json.hpp>

#include "fuzz/fuzzer_input.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  static const auto* const content = new Json(Json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Zürich <|im_end|> {{ x }}"},
      {"role": "assistant", "content": "", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": [1, 2.5, null]}}}]},
      {"role": "tool", "tool_call_id": "a", "content": "5 °C"},
      {"role": "user", "content": "And tomorrow?"}],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object"}}}]})"));
  static const auto* const own =
      new Json({{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", true}});
  const auto parsed = tandem::ChatTemplate::Parse(tandem::AsText(data, size));
  if (!parsed.ok()) return 0;
  (void)(*parsed)->Render(*content, *own);
  return 0;
}
