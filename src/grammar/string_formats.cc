#include "grammar/string_formats.h"

#include <string>
#include <unordered_map>

namespace tandem {
namespace {

std::unordered_map<std::string_view, std::string> MakeFormats() {
  const std::string date =
      "[0-9]{3}[1-9]-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|"
      "1[0-9]|2[0-8]))";
  const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string group = "[0-9a-f]{1,4}";
  // Groups that are repeated take long to follow; characters do not.
  const std::string label = "[a-z][a-z0-9]{0,25}(-[a-z0-9]{1,25})?";
  const std::string host = label + "(\\." + label + "){0,3}";
  const std::string segment = "[A-Za-z0-9._~-]{1,64}";
  return {
      {"date", date},
      {"time", time},
      {"date-time", date + "T" + time},
      {"duration",
       "P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,2}M([0-9]{1,2}D)?)?|[0-9]{1,4}M([0-9]{1,2}D)?|[0-9]{1,4}D|"
       "([0-9]{1,4}D)?T([0-9]{1,4}H([0-9]{1,2}M([0-9]{1,2}S)?)?|[0-9]{1,4}M([0-9]{1,2}S)?|[0-9]{1,4}S))"},
      {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
      {"ipv4", byte + "(\\." + byte + "){3}"},
      {"ipv6", group + "(:" + group + "){7}|" + group + "(:" + group + "){0,3}::" + group + "(:" + group +
                   "){0,2}|::1"},
      {"hostname", host},
      {"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,16})?@" + label + "(\\." + label + "){1,2}"},
      {"uri", "https?://" + host + "(:[1-9][0-9]{0,3})?(/" + segment +
                  ")*/?(\\?[A-Za-z0-9._~=&-]*)?(#[A-Za-z0-9._~-]*)?"},
  };
}

}  // namespace

std::optional<std::string_view> FormatRegex(std::string_view format) {
  static const std::unordered_map<std::string_view, std::string> formats = MakeFormats();
  const auto found = formats.find(format);
  return found == formats.end() ? std::nullopt : std::optional<std::string_view>(found->second);
}

}  // namespace tandem
