#include "traces/mooncake_trace.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kMaxLength = int64_t{1} << 31;

class MooncakeReader {
 public:
  explicit MooncakeReader(const std::string& source) : source_(source) {}

  Result<MooncakeRequest> Read(std::string_view line, int64_t line_number) {
    line_number_ = line_number;
    const json root = json::parse(line, nullptr, false);
    if (!root.is_object()) return Malformed("it is no JSON object");
    MooncakeRequest request;
    TANDEM_ASSIGN_OR_RETURN(request.arrival_s, ReadArrival(root));
    TANDEM_ASSIGN_OR_RETURN(request.prompt_tokens, ReadLength(root, "input_length"));
    TANDEM_ASSIGN_OR_RETURN(request.output_tokens, ReadLength(root, "output_length"));
    TANDEM_ASSIGN_OR_RETURN(request.block_ids, ReadIds(root, request.prompt_tokens));
    return request;
  }

 private:
  template <typename... Args>
  Error Malformed(fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kMalformedFile, "{}, line {}: {}", source_, line_number_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  Result<double> ReadArrival(const json& root) {
    const auto field = root.find("timestamp");
    if (field == root.end() || !field->is_number() || !std::isfinite(field->get<double>())) {
      return Malformed("timestamp is no number of milliseconds");
    }
    const double arrival_s = field->get<double>() / 1e3;
    if (arrival_s < last_arrival_s_) return Malformed("timestamp is before that of the line above");
    last_arrival_s_ = arrival_s;
    return arrival_s;
  }

  Result<int64_t> ReadLength(const json& root, const char* name) const {
    const auto field = root.find(name);
    if (field == root.end() || !field->is_number_integer() || field->get<int64_t>() < 1 ||
        field->get<int64_t>() > kMaxLength) {
      return Malformed("{} is no number of tokens from 1 to {}", name, kMaxLength);
    }
    return field->get<int64_t>();
  }

  Result<std::vector<int64_t>> ReadIds(const json& root, int64_t prompt_tokens) const {
    const auto field = root.find("hash_ids");
    if (field == root.end() || !field->is_array()) return Malformed("hash_ids is no list");
    std::vector<int64_t> ids;
    ids.reserve(field->size());
    for (const json& id : *field) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0) {
        return Malformed("hash_ids has something that is no integer of at least 0");
      }
      ids.push_back(id.get<int64_t>());
    }
    const int64_t num_full = prompt_tokens / kMooncakeBlockTokens;
    const int64_t num_blocks = (prompt_tokens + kMooncakeBlockTokens - 1) / kMooncakeBlockTokens;
    if (std::ssize(ids) < num_full || std::ssize(ids) > num_blocks) {
      return Malformed("hash_ids has {} ids where {} tokens are {} blocks of {}", ids.size(), prompt_tokens,
                       num_blocks, kMooncakeBlockTokens);
    }
    return ids;
  }

  const std::string& source_;
  int64_t line_number_ = 0;
  double last_arrival_s_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

Result<std::vector<MooncakeRequest>> ParseMooncakeTrace(std::string_view text, const std::string& source) {
  MooncakeReader reader(source);
  std::vector<MooncakeRequest> requests;
  for (int64_t line_number = 1; !text.empty(); ++line_number) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    TANDEM_ASSIGN_OR_RETURN(MooncakeRequest request, reader.Read(line, line_number));
    requests.push_back(std::move(request));
  }
  if (requests.empty()) {
    return MakeError(ErrorCode::kMalformedFile, "{}: there are no requests in it", source);
  }
  return requests;
}

}  // namespace tandem
