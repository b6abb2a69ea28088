#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "jinja/error.h"
#include "jinja/interpreter.h"
#include "jinja/json.h"
#include "jinja/parser.h"

namespace tandem {
namespace {

Error ToError(const jinja::TemplateError& error) {
  if (error.raised_by_template) return Error{ErrorCode::kInvalidArgument, error.what(), {}};
  return MakeError(ErrorCode::kInvalidArgument, "chat template, line {}: {}", error.line, error.what());
}

bool IsChatRole(const jinja::Value& value) {
  return value.is_string() &&
         std::find(kChatRoles.begin(), kChatRoles.end(), value.text()) != kChatRoles.end();
}

// messages with the names of the known roles as the template's.
jinja::Value WithOwnRoles(const jinja::Value& messages) {
  if (!messages.is_list_or_tuple()) return messages;
  std::vector<jinja::Value> result = messages.items();
  for (jinja::Value& message : result) {
    if (!message.is(jinja::Kind::kDict)) continue;
    auto dict = std::make_shared<jinja::DictData>();
    for (const auto& [key, value] : message.dict().entries) {
      const bool own = key.is_string() && key.text() == "role" && IsChatRole(value);
      dict->Set(key, own ? jinja::Value::String(value.text()) : value);
    }
    message = jinja::Value::Dict(std::move(dict));
  }
  return jinja::Value::List(std::move(result));
}

}  // namespace

struct ChatTemplate::Program {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program, std::string_view source)
    : program_(std::move(program)), source_(source) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  try {
    auto program = std::make_unique<Program>();
    program->body = jinja::ParseTemplate(source);
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(program), source));
  } catch (const jinja::TemplateError& error) {
    return ToError(error);
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kResourceExhausted, "chat template: {}", error.what());
  }
}

Result<RenderedChat> ChatTemplate::Render(const nlohmann::ordered_json& content,
                                          const nlohmann::ordered_json& own) const {
  if (!content.is_object() || !own.is_object()) {
    return MakeError(ErrorCode::kInvalidArgument, "chat template: the variables must be an object");
  }
  try {
    std::vector<std::pair<std::string, jinja::Value>> values;
    for (const auto& [name, value] : own.items()) {
      values.emplace_back(name, jinja::FromJson(value, Source::kTemplate));
    }
    // A later value of a name replaces the earlier one.
    for (const auto& [name, value] : content.items()) {
      jinja::Value given = jinja::FromJson(value, Source::kContent);
      values.emplace_back(name, name == "messages" ? WithOwnRoles(given) : std::move(given));
    }
    auto [text, provenance] = jinja::Interpreter(values).Render(program_->body).Release();
    return RenderedChat{std::move(text), std::move(provenance)};
  } catch (const jinja::TemplateError& error) {
    return ToError(error);
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kResourceExhausted, "chat template: {}", error.what());
  }
}

}  // namespace tandem
