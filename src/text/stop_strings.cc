#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace tandem {

StopStringMatcher::StopStringMatcher(std::vector<std::string> stop_strings) {
  for (std::string& stop_string : stop_strings) {
    if (stop_string.empty()) continue;
    Pattern pattern;
    pattern.text = std::move(stop_string);
    pattern.borders.assign(pattern.text.size() + 1, 0);
    for (size_t n = 1, border = 0; n < pattern.text.size(); ++n) {
      while (border > 0 && pattern.text[n] != pattern.text[border]) border = pattern.borders[border];
      if (pattern.text[n] == pattern.text[border]) ++border;
      pattern.borders[n + 1] = border;
    }
    patterns_.push_back(std::move(pattern));
  }
}

StopStringMatcher::Output StopStringMatcher::Append(std::string_view text) {
  Output output;
  if (found_ >= 0) {
    output.stopped = true;
    output.matched = patterns_[found_].text;
    return output;
  }
  size_t length = held_back_.size();
  held_back_ += text;
  for (const char c : text) {
    ++length;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      while (pattern.matched > 0 && pattern.text[pattern.matched] != c)
        pattern.matched = pattern.borders[pattern.matched];
      if (pattern.text[pattern.matched] == c) ++pattern.matched;
      if (pattern.matched == pattern.text.size() &&
          (found_ < 0 || pattern.text.size() > patterns_[found_].text.size()))
        found_ = static_cast<int>(i);
    }
    if (found_ >= 0) {
      output.stopped = true;
      output.matched = patterns_[found_].text;
      output.text = held_back_.substr(0, length - output.matched.size());
      held_back_.clear();
      return output;
    }
  }
  size_t held = 0;
  for (const Pattern& pattern : patterns_) held = std::max(held, pattern.matched);
  output.text = held_back_.substr(0, length - held);
  held_back_.erase(0, length - held);
  return output;
}

std::string StopStringMatcher::Flush() {
  return std::exchange(held_back_, {});
}

}  // namespace tandem
