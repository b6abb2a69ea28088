// Flags of tandem serve that say who may use it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/access_rules.h"
#include "server/server.h"

namespace CLI {
class App;
}

namespace tandem {

// As typed.
struct AccessFlags {
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  bool open_metrics = false;
  bool share_prefix_cache = false;
  std::string access_log;
  std::string root_path;
};

// flags outlives app.
void AddAccessFlags(CLI::App* app, AccessFlags* flags);

// Sets the options that the flags are about. Errors: those of the keys, kInvalidArgument; param is the flag.
Status SetAccessOptions(const AccessFlags& flags, ServerOptions* options);

}  // namespace tandem
