#include "cli/access_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <utility>

#include "base/param_error.h"
#include "cli/env_flag.h"
#include "cli/secret_arguments.h"
#include "server/api_keys.h"

namespace tandem {
namespace {

constexpr const char* kFirstKeyName = "default";

Result<std::vector<ApiKey>> CollectKeys(const AccessFlags& flags) {
  if (flags.api_keys.empty()) TANDEM_RETURN_IF_ERROR(CheckSecretVariable("api-key", "TANDEM_API_KEY"));
  if (flags.api_key_file.empty()) {
    TANDEM_RETURN_IF_ERROR(CheckSecretVariable("api-key-file", "TANDEM_API_KEY_FILE"));
  }
  std::vector<ApiKey> keys;
  for (const std::string& key : flags.api_keys) {
    const size_t count = keys.size() + 1;
    keys.push_back(
        {.name = count == 1 ? kFirstKeyName : fmt::format("{}{}", kFirstKeyName, count), .key = key});
  }
  if (flags.api_key_file.empty()) return keys;
  auto from_file = ReadApiKeyFile(flags.api_key_file);
  if (!from_file.ok()) {
    return Error{from_file.error().code, from_file.error().message, "api-key-file"};
  }
  for (ApiKey& key : *from_file) keys.push_back(std::move(key));
  return keys;
}

Result<std::string> ParseRootPath(const std::string& text) {
  std::string path = text;
  while (path.ends_with('/')) path.pop_back();
  const bool well_formed = path.empty() || (path.starts_with('/') && !path.starts_with("//") &&
                                            path.find_first_of("?# \t\r\n\"") == std::string::npos);
  if (!well_formed) {
    return MakeParamError(ErrorCode::kInvalidArgument, "root-path", "'{}' is no path such as /tandem", text);
  }
  return path;
}

}  // namespace

void AddAccessFlags(CLI::App* app, AccessFlags* flags) {
  AddFlag(app, "api-key", &flags->api_keys,
          "Key that clients must send (Authorization: Bearer KEY, or x-api-key); may be given several times")
      ->allow_extra_args(false);
  AddFlag(app, "api-key-file", &flags->api_key_file, "File with more keys, as lines of NAME KEY");
  AddFlag(
      app, "allowed-hosts", &flags->allowed_hosts,
      "Names beside localhost under which the server is reached, *.NAME for all below one; checked behind a "
      "key too if given")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddFlag(app, "allowed-origins", &flags->allowed_origins,
          "Origins of web pages that may use the server, beside its own and those on this machine; *: all")
      ->delimiter(',')
      ->allow_extra_args(false);
  app->add_flag("--open-metrics", flags->open_metrics, "/metrics needs no key")
      ->envname("TANDEM_OPEN_METRICS");
  app->add_flag(
         "--share-prefix-cache", flags->share_prefix_cache,
         "With several keys: requests of one begin with what was computed for another's. Who has a key can "
         "then find out what others have sent")
      ->envname("TANDEM_SHARE_PREFIX_CACHE");
  AddFlag(app, "access-log", &flags->access_log,
          "File to which a JSON object is appended for each request; -: standard output");
  AddFlag(app, "root-path", &flags->root_path, "Path under which a proxy has the server, such as /tandem");
}

Status SetAccessOptions(const AccessFlags& flags, ServerOptions* options) {
  AccessOptions& access = options->access;
  TANDEM_ASSIGN_OR_RETURN(access.keys, CollectKeys(flags));
  access.allowed_hosts = flags.allowed_hosts;
  access.allowed_origins = flags.allowed_origins;
  access.open_metrics = flags.open_metrics;
  access.share_prefix_cache = flags.share_prefix_cache;
  TANDEM_RETURN_IF_ERROR(AccessRules::Make(access));
  options->access_log = flags.access_log;
  TANDEM_ASSIGN_OR_RETURN(options->root_path, ParseRootPath(flags.root_path));
  return {};
}

}  // namespace tandem
