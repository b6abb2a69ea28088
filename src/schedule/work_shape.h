// What kind of work the requests of late are: how many prompt tokens go with an output token.
#pragma once

#include <cstdint>

namespace tandem {

// Prompts count when their request ends, output tokens when they are made, whoever makes them. The outputs of
// those that ended would not do: while many requests begin, it is the short ones that end first, and the more
// of the work was taken for prompts, the more prompts would be let in. Recent ends count more: those before
// the last hundred hardly do.
class WorkShape {
 public:
  void CountOutput(int64_t num_tokens) { output_tokens_ += static_cast<double>(num_tokens); }
  // num_output: its output tokens that were not counted as they were made.
  void CountEnd(int64_t prompt_len, int64_t num_output = 0) {
    constexpr double kKeep = 0.99;
    prompt_tokens_ = kKeep * prompt_tokens_ + static_cast<double>(prompt_len);
    output_tokens_ = kKeep * output_tokens_ + static_cast<double>(num_output);
    has_ended_ = true;
  }
  // Before the first end: kUnknown.
  double prompt_tokens_per_output() const {
    return has_ended_ && output_tokens_ > 0 ? prompt_tokens_ / output_tokens_ : kUnknown;
  }

  static constexpr double kUnknown = 4;

 private:
  double prompt_tokens_ = 0;
  double output_tokens_ = 0;
  bool has_ended_ = false;
};

}  // namespace tandem
