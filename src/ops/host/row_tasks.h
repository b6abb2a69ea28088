// Division of row-wise work among a pool's threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/host/compute_pool.h"

namespace tandem {

// Calls body(row) for every row. Small work stays on the calling thread: handing it out costs microseconds.
template <typename Body>
void ForEachRow(ComputePool& pool, int64_t num_rows, int64_t elements_a_row, const Body& body) {
  constexpr int64_t kElementsATask = 16 << 10;
  const int64_t rows_a_task = std::max<int64_t>(1, kElementsATask / std::max<int64_t>(1, elements_a_row));
  const int64_t num_tasks = (num_rows + rows_a_task - 1) / rows_a_task;
  pool.ParallelFor(num_tasks, [&](int64_t task) {
    const int64_t end = std::min(num_rows, (task + 1) * rows_a_task);
    for (int64_t row = task * rows_a_task; row < end; ++row) body(row);
  });
}

}  // namespace tandem
