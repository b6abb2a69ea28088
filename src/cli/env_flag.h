// Flags that are also read from the environment: --max-model-len, TANDEM_MAX_MODEL_LEN.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace tandem {

// value outlives app.
template <typename T>
CLI::Option* AddFlag(CLI::App* app, const std::string& name, T* value, const std::string& description) {
  std::string variable = "TANDEM_";
  for (const char c : name) {
    variable.push_back(c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c));
  }
  return app->add_option("--" + name, *value, description)->envname(variable);
}

}  // namespace tandem
