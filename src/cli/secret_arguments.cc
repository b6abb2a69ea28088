#include "cli/secret_arguments.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/param_error.h"

namespace tandem {
namespace {

constexpr std::string_view kKeyFlag = "--api-key";
constexpr std::string_view kFileFlag = "--api-key-file";

// Where in which argument the value of a flag begins.
struct FlagValue {
  int index = 0;
  size_t offset = 0;
};

std::vector<FlagValue> FindValues(int argc, const char* const* argv, std::string_view flag) {
  std::vector<FlagValue> values;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == flag && i + 1 < argc) values.push_back({++i, 0});
    if (word.size() > flag.size() && word.starts_with(flag) && word[flag.size()] == '=') {
      values.push_back({i, flag.size() + 1});
    }
  }
  return values;
}

}  // namespace

std::vector<std::string> WithoutSecrets(int argc, const char* const* argv) {
  std::vector<std::string> words(argv, argv + argc);
  for (const FlagValue& value : FindValues(argc, argv, kKeyFlag)) {
    words[static_cast<size_t>(value.index)].replace(value.offset, std::string::npos, "***");
  }
  return words;
}

void OverwriteSecrets(int argc, char** argv) {
  for (const FlagValue& value : FindValues(argc, argv, kKeyFlag)) {
    char* key = argv[value.index] + value.offset;
    std::memset(key, '*', std::strlen(key));
  }
}

Status CheckSecretFlags(int argc, const char* const* argv) {
  for (const std::string_view flag : {kKeyFlag, kFileFlag}) {
    for (const FlagValue& value : FindValues(argc, argv, flag)) {
      if (argv[value.index][value.offset] != '\0') continue;
      return MakeParamError(ErrorCode::kInvalidArgument, flag.substr(2),
                            "the value is empty; leave the flag out if there is no key");
    }
  }
  return {};
}

Status CheckSecretVariable(const char* param, const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value != '\0') return {};
  return MakeParamError(ErrorCode::kInvalidArgument, param,
                        "{} is set and empty; unset it if there is no key", variable);
}

}  // namespace tandem
