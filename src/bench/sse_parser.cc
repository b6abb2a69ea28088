#include "bench/sse_parser.h"

#include <algorithm>

namespace tandem {

void SseParser::Feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_data) {
  while (!bytes.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    // LF is what servers write; a CR before it ends the line earlier.
    const std::string_view to_lf = bytes.substr(0, bytes.find('\n'));
    const size_t end = std::min(to_lf.find('\r'), to_lf.size());
    if (end == bytes.size()) {
      line_ += bytes;
      return;
    }
    after_cr_ = bytes[end] == '\r';
    if (line_.empty()) {
      EndLine(bytes.substr(0, end), on_data);
    } else {
      line_ += bytes.substr(0, end);
      EndLine(line_, on_data);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void SseParser::Reset() {
  *this = SseParser();
}

void SseParser::EndLine(std::string_view line, const std::function<void(std::string_view data)>& on_data) {
  constexpr std::string_view kData = "data";
  if (line.empty()) {
    if (has_data_) on_data(data_);
    has_data_ = false;
    data_.clear();
    return;
  }
  if (line.substr(0, line.find(':')) != kData) return;
  std::string_view value = line.substr(std::min(kData.size() + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  has_data_ = true;
  data_ += value;
}

}  // namespace tandem
