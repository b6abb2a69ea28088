#include "collective/mpi/mpi_wait.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/spin.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// Shards in step are apart by microseconds.
constexpr int kSpins = 50;
constexpr std::chrono::microseconds kYielding{300};

// A process that has had nothing to do for a while is not to keep a core busy.
std::chrono::microseconds SleepAfter(std::chrono::nanoseconds waited) {
  if (waited < std::chrono::milliseconds(50)) return std::chrono::microseconds(50);
  return std::chrono::microseconds(waited < std::chrono::seconds(1) ? 200 : 1000);
}

// What one look counts for at most.
constexpr std::chrono::milliseconds kLongestPoll{50};

}  // namespace

bool AwaitMpi(const ExchangeState& state, std::optional<std::chrono::milliseconds> timeout,
              const std::function<bool()>& is_done) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (state.aborted()) return false;
    if (is_done()) return true;
    CpuRelax();
  }
  std::chrono::nanoseconds waited{0};
  Clock::time_point last = Clock::now();
  while (!state.aborted()) {
    if (is_done()) return true;
    const Clock::time_point now = Clock::now();
    waited += std::min<std::chrono::nanoseconds>(now - last, kLongestPoll);
    last = now;
    if (timeout && waited >= *timeout) return false;
    if (waited < kYielding) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(SleepAfter(waited));
    }
  }
  return false;
}

void CheckMpi(int code, const char* call) {
  TANDEM_CHECK(code == MPI_SUCCESS, "{} failed with {}", call, code);
}

}  // namespace tandem
