#include "bench/steady_start.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {

int64_t BeginAmidWork(const TierRoom& room, std::vector<WorkloadRequest>* requests) {
  // What the engine leaves free as well: room to grow in the gpu tier, and a part of the cpu tier.
  int64_t gpu_free = room.gpu_blocks - room.gpu_blocks / 100 - 1;
  int64_t cpu_free = room.cpu_blocks - room.cpu_blocks / 20 - 1;
  int64_t num_begun = 0;
  int64_t num_in_cpu_tier = 0;
  for (WorkloadRequest& request : *requests) {
    if (num_begun == room.max_num_seqs) break;
    // Multiples of the golden ratio: any number of them is spread evenly.
    double whole = 0;
    const double share = std::modf((static_cast<double>(num_begun) + 0.5) * std::numbers::phi, &whole);
    const auto made = static_cast<int64_t>(share * static_cast<double>(request.output_tokens));
    const int64_t made_tokens = std::clamp<int64_t>(made, 0, request.output_tokens - 1);
    const int64_t blocks = (request.prompt_tokens + made_tokens + room.block_size - 1) / room.block_size;
    if (blocks + 1 <= gpu_free) {
      gpu_free -= blocks + 1;
    } else if (blocks <= cpu_free && num_in_cpu_tier < room.max_cpu_requests) {
      cpu_free -= blocks;
      ++num_in_cpu_tier;
    } else {
      break;
    }
    request.begun = true;
    request.made_tokens = made_tokens;
    ++num_begun;
  }
  return num_begun;
}

}  // namespace tandem
