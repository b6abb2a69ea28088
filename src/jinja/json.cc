#include "jinja/json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "jinja/error.h"

namespace tandem::jinja {
namespace {

Value Convert(const nlohmann::ordered_json& json, Source source, int depth) {
  if (depth > kMaxValueDepth) throw TemplateError("value nested too deeply");
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::Bool(json.get<bool>()).From(source);
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::Int(json.get<int64_t>()).From(source);
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Value::Float(static_cast<double>(number)).From(source);
      }
      return Value::Int(static_cast<int64_t>(number)).From(source);
    }
    case nlohmann::ordered_json::value_t::number_float:
      return Value::Float(json.get<double>()).From(source);
    case nlohmann::ordered_json::value_t::string:
      return Value::String(SourcedText(json.get_ref<const std::string&>(), source));
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(Convert(item, source, depth + 1));
      return Value::List(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      auto dict = std::make_shared<DictData>();
      for (const auto& [key, item] : json.items())
        dict->Set(Value::String(SourcedText(key, source)), Convert(item, source, depth + 1));
      return Value::Dict(std::move(dict));
    }
    default:
      return Value::None().From(source);
  }
}

}  // namespace

Value FromJson(const nlohmann::ordered_json& json, Source source) {
  return Convert(json, source, 0);
}

}  // namespace tandem::jinja
