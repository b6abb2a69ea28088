#include "load/pooling_config.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "load/json_fields.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxModuleBytes = uint64_t{1} << 20;
constexpr std::array<std::pair<const char*, std::optional<Pooling>>, 6> kPoolingModes = {{
    {"pooling_mode_lasttoken", Pooling::kLast},
    {"pooling_mode_mean_tokens", Pooling::kMean},
    {"pooling_mode_cls_token", Pooling::kFirst},
    {"pooling_mode_max_tokens", std::nullopt},
    {"pooling_mode_mean_sqrt_len_tokens", std::nullopt},
    {"pooling_mode_weightedmean_tokens", std::nullopt},
}};

std::string ModulesPath(const std::string& folder) {
  return (std::filesystem::path(folder) / "modules.json").string();
}

Result<std::optional<Pooling>> ReadPoolingModule(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const json config, ReadJsonObject(path, kMaxModuleBytes));
  const JsonFields fields(config, path);
  std::optional<Pooling> found;
  int num_modes = 0;
  for (const auto& [key, pooling] : kPoolingModes) {
    TANDEM_ASSIGN_OR_RETURN(const bool used, fields.BoolOr(key, false));
    if (!used) continue;
    ++num_modes;
    found = pooling;
    if (!pooling || num_modes > 1) {
      return MakeError(ErrorCode::kUnsupported,
                       "{}: embeddings of the last token, of the first or of the mean of all are supported, "
                       "not {}{}",
                       path, num_modes > 1 ? "several at once, such as " : "", key);
    }
  }
  return found;
}

}  // namespace

bool IsSentenceTransformer(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(ModulesPath(folder), ignored);
}

Result<std::optional<Pooling>> ReadFolderPooling(const std::string& folder) {
  if (!IsSentenceTransformer(folder)) return std::optional<Pooling>();
  const std::string path = ModulesPath(folder);
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxModuleBytes));
  // The file is a list; readers know objects.
  TANDEM_ASSIGN_OR_RETURN(const json object, ParseJsonObject("{\"modules\":" + text + "}", path));
  const JsonFields fields(object, path);
  const json* modules = fields.Find("modules");
  if (modules == nullptr || !modules->is_array()) return fields.Wrong("modules", "a list of modules");
  std::optional<Pooling> pooling;
  for (const json& module : *modules) {
    if (!module.is_object()) return fields.Wrong("modules", "a list of modules");
    const JsonFields each(module, path);
    TANDEM_ASSIGN_OR_RETURN(const std::string type, each.String("type"));
    TANDEM_ASSIGN_OR_RETURN(const std::string name, each.StringOr("path", ""));
    const std::string_view kind = std::string_view(type).substr(type.rfind('.') + 1);
    if (kind == "Pooling") {
      TANDEM_ASSIGN_OR_RETURN(
          pooling, ReadPoolingModule((std::filesystem::path(folder) / name / "config.json").string()));
    } else if (kind != "Transformer" && kind != "Normalize") {
      return MakeError(ErrorCode::kUnsupported,
                       "{}: module '{}' is not supported; Transformer, Pooling and Normalize are", path,
                       type.substr(0, 100));
    }
  }
  return pooling;
}

}  // namespace tandem
