// Waiting without sleeping, for waits of microseconds.
#pragma once

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {

inline void CpuRelax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins, and yields the core now and then once the wait has become long: whoever is waited for may need it.
class Spinner {
 public:
  void Pause() {
    if (++count_ < kSpinsBeforeYield) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
  }

 private:
  static constexpr int kSpinsBeforeYield = 2000;
  int count_ = 0;
};

}  // namespace tandem
