#include "load/text_side.h"

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "load/folder_files.h"
#include "load/gguf_config.h"
#include "load/gguf_file.h"
#include "load/hf_config.h"
#include "load/json_fields.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxTokenizerConfigBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxTemplateBytes = uint64_t{4} << 20;

// "chat_template" of tokenizer_config.json: a text, or a list of named ones.
Result<std::string> ReadConfiguredTemplate(const std::string& tokenizer_config_path) {
  constexpr const char* kKey = "chat_template";
  TANDEM_ASSIGN_OR_RETURN(const json config, ReadJsonObject(tokenizer_config_path, kMaxTokenizerConfigBytes));
  const JsonFields fields(config, tokenizer_config_path);
  const json* value = fields.Find(kKey);
  if (value == nullptr) return std::string();
  if (!value->is_array()) return fields.String(kKey);
  std::string chosen;
  for (const json& entry : *value) {
    if (!entry.is_object()) return fields.Wrong(kKey, "a text or a list of named texts");
    const JsonFields named(entry, fmt::format("{}: in '{}'", tokenizer_config_path, kKey));
    TANDEM_ASSIGN_OR_RETURN(const std::string name, named.String("name"));
    TANDEM_ASSIGN_OR_RETURN(std::string text, named.String("template"));
    if (chosen.empty() || name.compare("default") == 0) chosen = std::move(text);
  }
  return chosen;
}

Result<TextSource> FindTextSource(const std::string& folder) {
  TextSource source;
  const std::string tokenizer_json = JoinPath(folder, "tokenizer.json");
  const std::string tokenizer_model = JoinPath(folder, "tokenizer.model");
  if (FileExists(tokenizer_json)) {
    source.path = tokenizer_json;
  } else if (FileExists(tokenizer_model)) {
    source.kind = TextSource::Kind::kSentencePiece;
    source.path = tokenizer_model;
  }
  const std::string tokenizer_config = JoinPath(folder, "tokenizer_config.json");
  if (FileExists(tokenizer_config)) {
    source.tokenizer_config_path = tokenizer_config;
    TANDEM_ASSIGN_OR_RETURN(source.chat_template, ReadConfiguredTemplate(tokenizer_config));
  }
  // A template in its own file wins over the one in tokenizer_config.json.
  const std::string template_file = JoinPath(folder, "chat_template.jinja");
  if (FileExists(template_file)) {
    TANDEM_ASSIGN_OR_RETURN(source.chat_template, ReadTextFile(template_file, kMaxTemplateBytes));
  }
  return source;
}

Result<json> ReadIfThere(const std::string& path) {
  if (!FileExists(path)) return json::object();
  return ReadJsonObject(path, kMaxConfigBytes);
}

}  // namespace

Result<TextSide> ReadFolderTextSide(const std::string& folder) {
  const std::string config_path = JoinPath(folder, "config.json");
  const std::string generation_path = JoinPath(folder, "generation_config.json");
  TANDEM_ASSIGN_OR_RETURN(const json config, ReadIfThere(config_path));
  TANDEM_ASSIGN_OR_RETURN(const json generation_config, ReadIfThere(generation_path));
  TextSide side;
  TANDEM_ASSIGN_OR_RETURN(side.generation_defaults,
                          ParseHfGenerationDefaults(config, config_path, generation_config, generation_path));
  TANDEM_ASSIGN_OR_RETURN(side.source, FindTextSource(folder));
  return side;
}

Result<TextSide> ReadGgufTextSide(const GgufFile& file, const std::string& path) {
  TextSide side;
  TANDEM_ASSIGN_OR_RETURN(side.generation_defaults, ReadGgufGenerationDefaults(file));
  TANDEM_ASSIGN_OR_RETURN(const std::string_view chat_template,
                          file.GetStringOr("tokenizer.chat_template", ""));
  side.source = {.kind = TextSource::Kind::kGguf, .path = path, .chat_template = std::string(chat_template)};
  return side;
}

Result<TextSide> ReadTextSide(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
    return ReadGgufTextSide(*file, path);
  }
  TANDEM_ASSIGN_OR_RETURN(TextSide side, ReadFolderTextSide(path));
  if (side.source.path.empty())
    return MakeError(ErrorCode::kNotFound, "{}: neither tokenizer.json nor tokenizer.model", path);
  return side;
}

}  // namespace tandem
