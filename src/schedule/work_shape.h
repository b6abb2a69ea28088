// What kind of work the requests of late are: how many prompt tokens go with an output token.
#pragma once

#include <cstdint>

namespace tandem {

// Of the requests that ended; those before the last hundred hardly count.
class WorkShape {
 public:
  void CountEnd(int64_t prompt_len, int64_t num_output) {
    constexpr double kKeep = 0.99;
    prompt_tokens_ = kKeep * prompt_tokens_ + static_cast<double>(prompt_len);
    output_tokens_ = kKeep * output_tokens_ + static_cast<double>(num_output);
  }
  // kUnknown before the first output.
  double prompt_tokens_per_output() const {
    return output_tokens_ > 0 ? prompt_tokens_ / output_tokens_ : kUnknown;
  }

  static constexpr double kUnknown = 4;

 private:
  double prompt_tokens_ = 0;
  double output_tokens_ = 0;
};

}  // namespace tandem
