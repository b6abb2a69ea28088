#include "traces/trace_csv.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tandem {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 31;

// Fields between commas, without the spaces around them. No quotes: there is no text in a trace.
std::vector<std::string_view> SplitFields(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = line.find(',');
    std::string_view field = line.substr(0, comma);
    while (field.starts_with(' ') || field.starts_with('\t')) field.remove_prefix(1);
    while (field.ends_with(' ') || field.ends_with('\t')) field.remove_suffix(1);
    fields.push_back(field);
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

// Where each column of a request is found in a line.
struct TraceColumns {
  static constexpr size_t kAbsent = std::numeric_limits<size_t>::max();
  size_t arrival_s = kAbsent;
  size_t prompt_tokens = 0;
  size_t output_tokens = 0;
  size_t count = 0;
};

class TraceReader {
 public:
  explicit TraceReader(const std::string& source) : source_(source) {}

  Status ReadHeader(std::string_view line) {
    const std::vector<std::string_view> names = SplitFields(line);
    std::array<size_t, 3> found{};
    found.fill(TraceColumns::kAbsent);
    constexpr std::array<std::string_view, 3> kNames = {"arrival_s", "prompt_tokens", "output_tokens"};
    for (size_t i = 0; i < names.size(); ++i) {
      for (size_t k = 0; k < kNames.size(); ++k) {
        if (names[i] != kNames[k]) continue;
        if (found[k] != TraceColumns::kAbsent) return Malformed(1, "there are two columns {}", kNames[k]);
        found[k] = i;
      }
    }
    for (size_t k = 1; k < kNames.size(); ++k) {
      if (found[k] == TraceColumns::kAbsent) {
        return Malformed(1, "the first line names no column {}", kNames[k]);
      }
    }
    columns_ = {
        .arrival_s = found[0], .prompt_tokens = found[1], .output_tokens = found[2], .count = names.size()};
    return {};
  }

  Result<TraceRequest> ReadRequest(std::string_view line, int64_t line_number) {
    const std::vector<std::string_view> fields = SplitFields(line);
    if (fields.size() != columns_.count) {
      return Malformed(line_number, "{} fields where the first line has {}", fields.size(), columns_.count);
    }
    TraceRequest request;
    TANDEM_ASSIGN_OR_RETURN(request.prompt_tokens,
                            ReadLength(fields[columns_.prompt_tokens], "prompt_tokens", line_number));
    TANDEM_ASSIGN_OR_RETURN(request.output_tokens,
                            ReadLength(fields[columns_.output_tokens], "output_tokens", line_number));
    if (columns_.arrival_s != TraceColumns::kAbsent) {
      TANDEM_ASSIGN_OR_RETURN(request.arrival_s, ReadArrival(fields[columns_.arrival_s], line_number));
    }
    return request;
  }

 private:
  template <typename... Args>
  Error Malformed(int64_t line_number, fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kMalformedFile, "{}, line {}: {}", source_, line_number,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  Result<int64_t> ReadLength(std::string_view field, std::string_view column, int64_t line_number) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || value < 1 || value > kMaxTokens) {
      return Malformed(line_number, "{} is '{}', which is no number of tokens from 1 to {}", column, field,
                       kMaxTokens);
    }
    return value;
  }

  Result<double> ReadArrival(std::string_view field, int64_t line_number) {
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
      return Malformed(line_number, "arrival_s is '{}', which is no number of seconds", field);
    }
    if (value < last_arrival_s_) {
      return Malformed(line_number, "arrival_s {} is before that of the line above", field);
    }
    last_arrival_s_ = value;
    return value;
  }

  const std::string& source_;
  TraceColumns columns_;
  double last_arrival_s_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

Result<std::vector<TraceRequest>> ParseTraceCsv(std::string_view text, const std::string& source) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the mark that spreadsheets write
  TraceReader reader(source);
  std::vector<TraceRequest> requests;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++line_number;
    if (line_number == 1) {
      TANDEM_RETURN_IF_ERROR(reader.ReadHeader(line));
    } else if (!line.empty()) {
      TANDEM_ASSIGN_OR_RETURN(TraceRequest request, reader.ReadRequest(line, line_number));
      requests.push_back(request);
    }
  }
  if (requests.empty()) {
    return MakeError(ErrorCode::kMalformedFile, "{}: there are no requests in it", source);
  }
  return requests;
}

}  // namespace tandem
