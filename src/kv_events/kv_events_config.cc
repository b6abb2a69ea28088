#include "kv_events/kv_events_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/param_error.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr const char* kFlag = "kv-events-config";
constexpr std::array<std::string_view, 9> kKeys = {"enable_kv_cache_events", "publisher",    "endpoint",
                                                   "replay_endpoint",        "buffer_steps", "hwm",
                                                   "max_queue_size",         "topic",        "encoding"};

template <typename... Args>
Error Refuse(fmt::format_string<Args...> format, Args&&... args) {
  return MakeParamError(ErrorCode::kInvalidArgument, kFlag, format, std::forward<Args>(args)...);
}

// Null where the object has no such key, or null for it.
const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Status ReadString(const Json& object, const char* key, std::string* value) {
  const Json* given = Find(object, key);
  if (given == nullptr) return {};
  if (!given->is_string()) return Refuse("{} is a {} instead of a string", key, given->type_name());
  *value = given->get<std::string>();
  return {};
}

Status ReadInt(const Json& object, const char* key, int64_t min, int64_t* value) {
  const Json* given = Find(object, key);
  if (given == nullptr) return {};
  // What ZeroMQ takes too.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool fits =
      given->is_number_integer() && (!given->is_number_unsigned() || given->get<uint64_t>() <= kMost);
  if (!fits || given->get<int64_t>() < min || given->get<int64_t>() > kMost)
    return Refuse("{} is not a whole number from {} to {}", key, min, kMost);
  *value = given->get<int64_t>();
  return {};
}

Status ReadAddress(const Json& object, const char* key, std::string* value) {
  TANDEM_RETURN_IF_ERROR(ReadString(object, key, value));
  constexpr size_t kMaxLength = 1024;
  const bool printable = std::ranges::all_of(*value, [](char c) { return c > ' ' && c <= '~'; });
  if (!printable || value->size() > kMaxLength || value->find("://") == std::string::npos)
    return Refuse("{} is no ZeroMQ address, such as tcp://*:5557", key);
  return {};
}

// Whether events are wanted.
Result<bool> ReadEnabled(const Json& object) {
  bool enabled = false;
  if (const Json* given = Find(object, "enable_kv_cache_events"); given != nullptr) {
    if (!given->is_boolean())
      return Refuse("enable_kv_cache_events is a {} instead of true or false", given->type_name());
    enabled = given->get<bool>();
  }
  std::string publisher = enabled ? "zmq" : "null";
  TANDEM_RETURN_IF_ERROR(ReadString(object, "publisher", &publisher));
  if (publisher != "zmq" && publisher != "null")
    return Refuse("publisher '{}' is neither zmq nor null", publisher.substr(0, 100));
  return enabled && publisher == "zmq";
}

Status ReadEncoding(const Json& object, KvEventEncoding* encoding) {
  std::string name = "map";
  TANDEM_RETURN_IF_ERROR(ReadString(object, "encoding", &name));
  if (name != "map" && name != "array")
    return Refuse("encoding '{}' is neither map nor array", name.substr(0, 100));
  *encoding = name == "map" ? KvEventEncoding::kMap : KvEventEncoding::kArray;
  return {};
}

}  // namespace

Result<std::optional<KvEventsConfig>> ParseKvEventsConfig(std::string_view text) {
  if (text.empty()) return std::optional<KvEventsConfig>();
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) return Refuse("it is not a JSON object");
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(kKeys, key) == kKeys.end())
      return Refuse("it has no key '{}'; its keys are {}", key.substr(0, 100), fmt::join(kKeys, ", "));
  }
  KvEventsConfig config;
  TANDEM_ASSIGN_OR_RETURN(const bool enabled, ReadEnabled(object));
  TANDEM_RETURN_IF_ERROR(ReadAddress(object, "endpoint", &config.endpoint));
  if (Find(object, "replay_endpoint") != nullptr) {
    TANDEM_RETURN_IF_ERROR(ReadAddress(object, "replay_endpoint", &config.replay_endpoint.emplace()));
  }
  TANDEM_RETURN_IF_ERROR(ReadInt(object, "buffer_steps", 0, &config.buffer_steps));
  TANDEM_RETURN_IF_ERROR(ReadInt(object, "hwm", 0, &config.hwm));
  TANDEM_RETURN_IF_ERROR(ReadInt(object, "max_queue_size", 1, &config.max_queue_size));
  TANDEM_RETURN_IF_ERROR(ReadString(object, "topic", &config.topic));
  TANDEM_RETURN_IF_ERROR(ReadEncoding(object, &config.encoding));
  return enabled ? std::optional(std::move(config)) : std::nullopt;
}

}  // namespace tandem
