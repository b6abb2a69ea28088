// How fast this machine reads its memory: what decoding on the CPU is limited by.
#pragma once

#include <cstdint>

namespace tandem {

struct MemoryBandwidth {
  double one_thread_bytes_per_s = 0;
  double all_threads_bytes_per_s = 0;
  int num_threads = 1;
};

// Takes about a second. buffer_bytes: in all; far above the caches for a figure that means memory.
MemoryBandwidth MeasureReadBandwidth(int num_threads, int64_t buffer_bytes);

}  // namespace tandem
