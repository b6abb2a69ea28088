// Times of benchmarks are given in seconds, and kept on the clock of requests.
#pragma once

#include <chrono>

#include "request/request.h"

namespace tandem {

inline Clock::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace tandem
