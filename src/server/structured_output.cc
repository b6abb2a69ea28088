#include "server/structured_output.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/field_reader.h"
#include "server/json_text.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;
using Kind = GrammarSpec::Kind;

constexpr size_t kMaxChoices = 4096;
constexpr std::array<std::string_view, 4> kResponseFormats = {"text", "json_object", "json_schema",
                                                              "structural_tag"};

// Collects the one grammar that the fields of a body name.
class GrammarReader {
 public:
  explicit GrammarReader(std::optional<AnswerGrammar>* grammar) : grammar_(grammar) {}

  const std::optional<ApiError>& error() const { return error_; }

  void Fail(const std::string& param, std::string message) {
    if (!error_) error_ = InvalidRequest(param, std::move(message));
  }
  // Returns the spec to be filled in.
  GrammarSpec& Set(Kind kind, std::string param) {
    if (*grammar_) {
      Fail(param, fmt::format("{} and {} both say what the answer has to follow: give one of them",
                              (*grammar_)->param, param));
    }
    *grammar_ = AnswerGrammar{.spec = {.kind = kind}, .param = std::move(param)};
    return (*grammar_)->spec;
  }

  // A schema as an object (or true), or as a text that holds one.
  void Schema(const ordered_json& value, const std::string& param) {
    if (value.is_string()) {
      Set(Kind::kJsonSchema, param).text = value.get<std::string>();
    } else if (value.is_object() || value.is_boolean()) {
      Set(Kind::kJsonSchema, param).text = DumpJson(value);
    } else {
      Fail(param, fmt::format("{} must be a JSON schema, not {}", param, JsonTypeName(value)));
    }
  }
  void Text(Kind kind, const ordered_json& value, const std::string& param) {
    if (!value.is_string())
      return Fail(param, fmt::format("{} must be a string, not {}", param, JsonTypeName(value)));
    Set(kind, param).text = value.get<std::string>();
  }
  // An object, or a text that holds one.
  void Tag(const ordered_json& value, const std::string& param) {
    Set(Kind::kStructuralTag, param).text = value.is_string() ? value.get<std::string>() : DumpJson(value);
  }
  void Choices(const ordered_json& value, const std::string& param) {
    if (!value.is_array() || value.empty() || value.size() > kMaxChoices)
      return Fail(param, fmt::format("{} must be a list of 1 to {} strings", param, kMaxChoices));
    GrammarSpec& spec = Set(Kind::kChoice, param);
    for (const ordered_json& choice : value) {
      if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
        return Fail(param, fmt::format("{} must be strings that are not empty", param));
      spec.choices.push_back(choice.get<std::string>());
    }
  }
  // Nothing where the request does not say: objects are closed then.
  void CloseObjects(std::optional<bool> strict) {
    if (*grammar_ && strict) (*grammar_)->spec.strict = *strict;
  }
  void DropWhitespace() {
    if (*grammar_) (*grammar_)->spec.any_whitespace = false;
  }

 private:
  std::optional<AnswerGrammar>* grammar_;
  std::optional<ApiError> error_;
};

void ReadResponseFormat(FieldReader& body, GrammarReader* grammar) {
  const ordered_json* format = body.Object("response_format");
  if (format == nullptr) return;
  FieldReader fields(*format, "response_format.");
  const auto type = fields.OneOf("type", kResponseFormats);
  if (!type && !fields.error()) fields.Fail("type", "response_format.type is missing");
  if (type == "json_object") grammar->Set(Kind::kJsonObject, "response_format");
  if (type == "structural_tag") grammar->Tag(*format, "response_format");
  if (type == "json_schema") {
    const ordered_json* given = fields.Object("json_schema");
    if (given == nullptr && !fields.error())
      fields.Fail("json_schema", "response_format.json_schema is missing");
    if (given != nullptr) {
      FieldReader schema_fields(*given, "response_format.json_schema.");
      const ordered_json* schema = schema_fields.Find("schema");
      const auto strict = schema_fields.Bool("strict");
      if (schema == nullptr) schema_fields.Fail("schema", "response_format.json_schema.schema is missing");
      if (schema_fields.error()) {
        return body.Fail(schema_fields.error()->param, schema_fields.error()->message);
      }
      grammar->Schema(*schema, "response_format.json_schema.schema");
      grammar->CloseObjects(strict);
    }
  }
  if (fields.error()) body.Fail(fields.error()->param, fields.error()->message);
}

// vLLM's object of the same fields without their prefix.
void ReadStructuredOutputs(FieldReader& body, GrammarReader* grammar) {
  const ordered_json* given = body.Object("structured_outputs");
  if (given == nullptr) return;
  FieldReader fields(*given, "structured_outputs.");
  const auto at = [](std::string_view name) { return fmt::format("structured_outputs.{}", name); };
  if (const auto* value = fields.Find("json")) grammar->Schema(*value, at("json"));
  if (const auto* value = fields.Find("regex")) grammar->Text(Kind::kRegex, *value, at("regex"));
  if (const auto* value = fields.Find("choice")) grammar->Choices(*value, at("choice"));
  if (const auto* value = fields.Find("grammar")) grammar->Text(Kind::kEbnf, *value, at("grammar"));
  if (fields.Bool("json_object").value_or(false)) grammar->Set(Kind::kJsonObject, at("json_object"));
  if (const auto* value = fields.Find("structural_tag")) grammar->Tag(*value, at("structural_tag"));
  if (fields.Find("whitespace_pattern") != nullptr) {
    fields.Fail("whitespace_pattern",
                "structured_outputs.whitespace_pattern is not served; use disable_any_whitespace");
  }
  const bool no_whitespace = fields.Bool("disable_any_whitespace").value_or(false);
  const auto no_additional = fields.Bool("disable_additional_properties");
  if (fields.error()) return body.Fail(fields.error()->param, fields.error()->message);
  if (no_whitespace) grammar->DropWhitespace();
  grammar->CloseObjects(no_additional);
}

bool IsEmptyText(const ordered_json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

// The names of other servers and of vLLM's past: of llama.cpp, SGLang and Ollama.
void ReadOtherNames(FieldReader& body, GrammarReader* grammar) {
  for (const char* name : {"guided_json", "json_schema"}) {
    if (const auto* value = body.Find(name)) grammar->Schema(*value, name);
  }
  for (const char* name : {"guided_regex", "regex"}) {
    if (const auto* value = body.Find(name)) grammar->Text(Kind::kRegex, *value, name);
  }
  for (const char* name : {"guided_grammar", "grammar", "ebnf"}) {
    const auto* value = body.Find(name);
    if (value != nullptr && !IsEmptyText(*value)) grammar->Text(Kind::kEbnf, *value, name);
  }
  if (const auto* value = body.Find("guided_choice");
      value != nullptr && !(value->is_array() && value->empty()))
    grammar->Choices(*value, "guided_choice");
  if (const auto* value = body.Find("structural_tag")) grammar->Tag(*value, "structural_tag");
  const auto* format = body.Find("format");
  if (format == nullptr || IsEmptyText(*format)) return;
  if (*format == "json") {
    grammar->Set(Kind::kJsonObject, "format");
  } else if (format->is_object()) {
    grammar->Schema(*format, "format");
  } else {
    grammar->Fail("format", "format must be \"json\" or a JSON schema");
  }
}

}  // namespace

std::optional<ApiError> ReadAnswerGrammar(const ordered_json& body, std::optional<AnswerGrammar>* grammar) {
  FieldReader fields(body);
  GrammarReader reader(grammar);
  ReadResponseFormat(fields, &reader);
  ReadStructuredOutputs(fields, &reader);
  ReadOtherNames(fields, &reader);
  return fields.error() ? fields.error() : reader.error();
}

ordered_json StructuralFormatOf(const GrammarSpec& spec) {
  switch (spec.kind) {
    case Kind::kJsonObject:
      return {{"type", "json_schema"}, {"json_schema", {{"type", "object"}}}};
    case Kind::kJsonSchema: {
      auto schema = ParseJson(spec.text);
      return {{"type", "json_schema"},
              {"json_schema", schema.ok() ? std::move(*schema) : ordered_json(spec.text)}};
    }
    case Kind::kRegex:
      return {{"type", "regex"}, {"pattern", spec.text}};
    case Kind::kEbnf:
      return {{"type", "grammar"}, {"grammar", spec.text}};
    case Kind::kChoice: {
      ordered_json choices = ordered_json::array();
      for (const std::string& choice : spec.choices)
        choices.push_back({{"type", "const_string"}, {"value", choice}});
      return {{"type", "or"}, {"elements", std::move(choices)}};
    }
    case Kind::kStructuralTag: {
      auto tag = ParseJson(spec.text);
      if (!tag.ok() || !tag->is_object()) return nullptr;
      // The older form has no format; it stands for itself.
      return tag->contains("format") ? (*tag)["format"] : *tag;
    }
  }
  return nullptr;
}

}  // namespace tandem
