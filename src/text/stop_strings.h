// Finds stop strings in streamed text, also when they straddle token borders.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// One per sequence; not thread-safe. What it finds does not depend on how the text is cut into Append calls.
//
// The match that is complete first wins, so that generation can end at once; of several that end at the same
// byte the longest. Empty stop strings are ignored.
class StopStringMatcher {
 public:
  explicit StopStringMatcher(std::vector<std::string> stop_strings);

  struct Output {
    std::string text;      // safe to show: cannot become part of a stop string
    bool stopped = false;  // a stop string was found; text ends before it
    std::string matched;   // which one
  };
  // Holds back the longest suffix that may begin a stop string. After a match: stopped again, without text.
  Output Append(std::string_view text);
  // The held-back text, once the sequence has ended for another reason.
  std::string Flush();

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> borders;  // borders[n]: longest proper prefix of text[0, n) that is also its suffix
    size_t matched = 0;           // bytes of text that the input ends with
  };

  std::vector<Pattern> patterns_;
  std::string held_back_;
  int found_ = -1;  // index into patterns_
};

}  // namespace tandem
