#include "server/field_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace tandem {

using nlohmann::ordered_json;

std::string_view JsonTypeName(const ordered_json& value) {
  switch (value.type()) {
    case ordered_json::value_t::null:
      return "null";
    case ordered_json::value_t::object:
      return "an object";
    case ordered_json::value_t::array:
      return "an array";
    case ordered_json::value_t::string:
      return "a string";
    case ordered_json::value_t::boolean:
      return "a boolean";
    case ordered_json::value_t::number_integer:
    case ordered_json::value_t::number_unsigned:
      return "an integer";
    case ordered_json::value_t::number_float:
      return "a number";
    default:
      return "something else";
  }
}

std::optional<int64_t> AsInt64(const ordered_json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  return value.get<int64_t>();
}

bool ReadTokenIds(const ordered_json& array, int64_t vocab_size, std::vector<int32_t>* tokens,
                  std::string* problem) {
  tokens->clear();
  tokens->reserve(array.size());
  for (const ordered_json& item : array) {
    const auto id = AsInt64(item);
    if (!id) {
      *problem = fmt::format("token ids must be integers, item {} is {}", tokens->size(), JsonTypeName(item));
      return false;
    }
    if (*id < 0 || *id >= vocab_size) {
      *problem = fmt::format("token id {} is outside the vocabulary of {} tokens", *id, vocab_size);
      return false;
    }
    tokens->push_back(static_cast<int32_t>(*id));
  }
  return true;
}

FieldReader::FieldReader(const ordered_json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

const ordered_json* FieldReader::Find(std::string_view name) const {
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::Fail(std::string_view name, std::string message) {
  if (!error_) error_ = InvalidRequest(prefix_ + std::string(name), std::move(message));
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    Fail(name, fmt::format("{}{} must be a boolean, not {}", prefix_, name, JsonTypeName(*value)));
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<int64_t> FieldReader::Int(std::string_view name, int64_t min, int64_t max) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    Fail(name, fmt::format("{}{} must be an integer, not {}", prefix_, name, JsonTypeName(*value)));
    return std::nullopt;
  }
  const auto number = AsInt64(*value);
  if (!number || *number < min || *number > max) {
    const std::string range = max == std::numeric_limits<int64_t>::max()
                                  ? fmt::format("at least {}", min)
                                  : fmt::format("in [{}, {}]", min, max);
    Fail(name, fmt::format("{}{} must be {}, got {}", prefix_, name, range, value->dump()));
    return std::nullopt;
  }
  return number;
}

std::optional<double> FieldReader::Number(std::string_view name, double min, double max, bool min_excluded) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Fail(name, fmt::format("{}{} must be a number, not {}", prefix_, name, JsonTypeName(*value)));
    return std::nullopt;
  }
  const auto number = value->get<double>();
  const auto as_float = static_cast<double>(static_cast<float>(number));
  const bool inside = std::isfinite(as_float) && (min_excluded ? as_float > min : as_float >= min) &&
                      as_float <= static_cast<double>(static_cast<float>(max));
  if (!inside) {
    const bool unbounded = max >= static_cast<double>(std::numeric_limits<float>::max());
    const std::string range = unbounded ? fmt::format("{} {}", min_excluded ? "above" : "at least", min)
                                        : fmt::format("in {}{}, {}]", min_excluded ? '(' : '[', min, max);
    Fail(name, fmt::format("{}{} must be {}, got {}", prefix_, name, range, value->dump()));
    return std::nullopt;
  }
  return number;
}

std::optional<std::string> FieldReader::String(std::string_view name) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Fail(name, fmt::format("{}{} must be a string, not {}", prefix_, name, JsonTypeName(*value)));
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::optional<std::string> FieldReader::OneOf(std::string_view name,
                                              std::span<const std::string_view> values) {
  auto value = String(name);
  if (!value || std::find(values.begin(), values.end(), *value) != values.end()) return value;
  Fail(name,
       fmt::format("{}{} must be one of {}, got \"{}\"", prefix_, name, fmt::join(values, ", "), *value));
  return std::nullopt;
}

const ordered_json* FieldReader::Object(std::string_view name) {
  const ordered_json* value = Find(name);
  if (value != nullptr && !value->is_object()) {
    Fail(name, fmt::format("{}{} must be an object, not {}", prefix_, name, JsonTypeName(*value)));
    return nullptr;
  }
  return value;
}

std::optional<std::vector<int32_t>> FieldReader::TokenIds(std::string_view name, int64_t vocab_size) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) {
    Fail(name, fmt::format("{}{} must be a list of token ids, not {}", prefix_, name, JsonTypeName(*value)));
    return std::nullopt;
  }
  std::vector<int32_t> tokens;
  std::string problem;
  if (!ReadTokenIds(*value, vocab_size, &tokens, &problem)) {
    Fail(name, fmt::format("{}{}: {}", prefix_, name, problem));
    return std::nullopt;
  }
  return tokens;
}

}  // namespace tandem
