#include "load/mixture_families.h"

#include <algorithm>
#include <cctype>

namespace tandem {
namespace {

struct Family {
  std::string_view stem;  // of the names, in lower case, without punctuation
  std::string_view name;
};
// A longer stem stands before one that it begins with.
constexpr Family kFamilies[] = {
    {"qwen2moe", "Qwen2 MoE"},
    {"qwen3moe", "Qwen3 MoE"},
    {"qwen3next", "Qwen3-Next"},
    {"gptoss", "gpt-oss"},
    {"mixtral", "Mixtral"},
    {"deepseekv2", "DeepSeek-V2"},
    {"deepseekv3", "DeepSeek-V3"},
    {"deepseek2", "DeepSeek-V2 or V3"},
    {"deepseek", "DeepSeek MoE"},
    {"llama4", "Llama 4"},
    {"olmoe", "OLMoE"},
    {"phimoe", "Phi MoE"},
    {"granitemoe", "Granite MoE"},
    {"glm4moe", "GLM-4 MoE"},
    {"bailingmoe", "Ling"},
    {"ernie45moe", "ERNIE 4.5 MoE"},
    {"hunyuanmoe", "Hunyuan MoE"},
    {"minimax", "MiniMax"},
    {"dbrx", "DBRX"},
    {"grok", "Grok"},
};

}  // namespace

std::string_view MixtureFamily(std::string_view architecture) {
  std::string letters;
  for (const char c : architecture) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  const auto* const family =
      std::ranges::find_if(kFamilies, [&](const Family& f) { return letters.starts_with(f.stem); });
  return family == std::end(kFamilies) ? std::string_view() : family->name;
}

Error MixtureNotServed(const std::string& source, std::string_view architecture, int64_t num_experts) {
  const std::string_view family = MixtureFamily(architecture);
  const std::string name = family.empty() ? fmt::format("'{}'", architecture.substr(0, 100))
                                          : fmt::format("{} ('{}')", family, architecture.substr(0, 100));
  return MakeError(
      ErrorCode::kUnsupported,
      "{}: models of the family {} are mixtures of {}experts, which are not served; dense ones are", source,
      name, num_experts > 0 ? fmt::format("{} ", num_experts) : "");
}

}  // namespace tandem
