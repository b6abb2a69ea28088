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
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // tens of cycles; `yield` is none on most processors
#else
  std::this_thread::yield();
#endif
}

}  // namespace tandem
