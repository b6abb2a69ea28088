// What kind of work the requests of late are: how long their outputs and contexts, how many prompt tokens go
// with an output token.
#pragma once

#include <cstdint>

#include "planning/planner_tuning.h"

namespace tandem {

// Of the requests that ended; those before the last hundred hardly count.
class WorkShape {
 public:
  explicit WorkShape(const PlannerTuning& tuning = {}) : kept_(tuning.work_shape_memory) {}

  // num_prefilled: of the prompt's tokens, those that were not cached.
  void CountEnd(int64_t prompt_len, int64_t num_prefilled, int64_t num_output) {
    prompt_tokens_ = kept_ * prompt_tokens_ + static_cast<double>(num_prefilled);
    cached_tokens_ = kept_ * cached_tokens_ + static_cast<double>(prompt_len - num_prefilled);
    output_tokens_ = kept_ * output_tokens_ + static_cast<double>(num_output);
    // An output token on average reads the prompt and half of the output.
    context_tokens_ =
        kept_ * context_tokens_ + static_cast<double>(num_output) *
                                      (static_cast<double>(prompt_len) + static_cast<double>(num_output) / 2);
    num_ended_ = kept_ * num_ended_ + 1;
  }
  // kUnknown before the first output.
  double prompt_tokens_per_output() const {
    return output_tokens_ > 0 ? prompt_tokens_ / output_tokens_ : kUnknown;
  }

  // Of the prompts' tokens, those that were cached; 0 before the first end.
  double cached_share() const {
    return cached_tokens_ > 0 ? cached_tokens_ / (prompt_tokens_ + cached_tokens_) : 0;
  }

  // 0 before the first end.
  double mean_output_tokens() const { return num_ended_ > 0 ? output_tokens_ / num_ended_ : 0; }

  // As many requests as count: a hundred at most.
  double num_ended() const { return num_ended_; }

  // Tokens that a decode reads. 0 before the first output.
  double mean_context() const { return output_tokens_ > 0 ? context_tokens_ / output_tokens_ : 0; }

  static constexpr double kUnknown = PlannerTuning().first_prompt_tokens_per_output;

 private:
  double kept_;
  double prompt_tokens_ = 0;  // prefilled
  double cached_tokens_ = 0;  // of prompts, the others
  double output_tokens_ = 0;
  double context_tokens_ = 0;  // that all decodes have read
  double num_ended_ = 0;
};

}  // namespace tandem
