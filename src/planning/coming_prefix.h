// Who waits, though there is room, since somebody computes what it begins with.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kv/capacity_view.h"
#include "planning/scheduled_sequence.h"

namespace tandem {

// Whether what comes next behind the num_cached blocks that a waiting sequence begins with is being computed,
// or will be by one that the plan has admitted: it finds that then. id_of: the sequence of an element of
// admitted.
template <typename Admitted, typename IdOf>
bool IsComing(const CapacityView& capacity, const ScheduledSequence& waiting, int64_t num_cached,
              const Admitted& admitted, IdOf id_of) {
  const int64_t num_blocks = num_cached + 1;
  if (num_blocks * capacity.block_size() > waiting.first_logits()) return false;
  if (capacity.is_coming(waiting.id, num_blocks)) return true;
  return std::ranges::any_of(
      admitted, [&](SequenceId id) { return capacity.begin_alike(waiting.id, id, num_blocks); }, id_of);
}

}  // namespace tandem
