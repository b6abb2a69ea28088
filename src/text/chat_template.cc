#include "text/chat_template.h"

#include <fmt/format.h>

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

}  // namespace

struct ChatTemplate::Program {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  try {
    auto program = std::make_unique<Program>();
    program->body = jinja::ParseTemplate(source);
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(program)));
  } catch (const jinja::TemplateError& error) {
    return ToError(error);
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kResourceExhausted, "chat template: {}", error.what());
  }
}

Result<std::string> ChatTemplate::Render(const nlohmann::ordered_json& variables) const {
  if (!variables.is_object()) {
    return MakeError(ErrorCode::kInvalidArgument, "chat template: the variables must be an object");
  }
  try {
    std::vector<std::pair<std::string, jinja::Value>> values;
    for (const auto& [name, value] : variables.items()) values.emplace_back(name, jinja::FromJson(value));
    return jinja::Interpreter(values).Render(program_->body);
  } catch (const jinja::TemplateError& error) {
    return ToError(error);
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kResourceExhausted, "chat template: {}", error.what());
  }
}

}  // namespace tandem
