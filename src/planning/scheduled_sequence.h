// A request as strategies see it.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/iteration_plan.h"

namespace tandem {

struct ScheduledSequence {
  SequenceId id = 0;
  int64_t num_tokens = 0;    // prompt and generated tokens
  int64_t num_computed = 0;  // of which in the cache; 0 while it waits
  bool flexible = false;     // ScheduleLimits::max_tpot_us is not for it
  int64_t final_tokens = 0;  // that it will have at most; 0: not known
  // Echo: position of the first row whose log-probabilities are asked; absent: of none.
  std::optional<int64_t> echo_from = std::nullopt;
  // The same for those that begin with the same tokens and may so share blocks; 0: not known.
  uint64_t beginning = 0;
  // Of its rows that are still to be computed, the first that is to give logits.
  int64_t first_logits() const { return echo_from.value_or(num_tokens - 1); }
  bool decoding() const { return num_computed == num_tokens - 1 && num_computed > 0; }
  bool operator==(const ScheduledSequence&) const = default;
};

}  // namespace tandem
