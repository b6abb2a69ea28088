#include "trial/trial_memory.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/spin.h"

namespace tandem {
namespace {

constexpr int64_t kLineBytes = 64;
// 12 windows of 2 MiB are 6,144 small pages, more than any processor keeps the addresses of. (A machine that
// is virtual may have small pages below its large ones.)
constexpr int64_t kMaxWindows = 12;
// Of all threads, unless that is less than two windows for each: pinning it for a GPU takes time too.
constexpr int64_t kMaxBytes = int64_t{256} << 20;

}  // namespace

std::vector<std::byte> RandomPattern(DType dtype) {
  // Odd, so that the same numbers are at other places of every piece.
  constexpr size_t kNumbers = 24'571;
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<std::byte> pattern(kNumbers * DTypeSize(dtype));
  for (size_t i = 0; i < kNumbers; ++i) {
    const float value = uniform(random);
    std::byte* to = pattern.data() + i * DTypeSize(dtype);
    if (DTypeSize(dtype) == 1) {
      *to = std::byte{static_cast<unsigned char>(0x3a + static_cast<int>((value + 1.0F) * 2.0F))};
    } else if (dtype == DType::kF32) {
      std::memcpy(to, &value, sizeof value);
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
      std::memcpy(to, &bits, sizeof bits);
    }
  }
  return pattern;
}

namespace {

// That the calling thread has had a core.
double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// For the other threads, but not for one that has lost its core.
template <typename Condition>
void WaitAWhile(const Condition& condition) {
  constexpr auto kLongest = std::chrono::microseconds(200);
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (!condition() && std::chrono::steady_clock::now() < end) CpuRelax();
}

#if defined(__x86_64__)
bool HasUnorderedFlush() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kClflushoptBit = 1U << 23;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kClflushoptBit) != 0;
}

[[gnu::target("clflushopt")]] void FlushUnordered(std::byte* begin, int64_t size_bytes) {
  for (int64_t at = 0; at < size_bytes; at += kLineBytes) _mm_clflushopt(begin + at);
}

void Flush(std::byte* begin, int64_t size_bytes) {
  static const bool unordered = HasUnorderedFlush();
  if (unordered) {
    FlushUnordered(begin, size_bytes);
  } else {
    for (int64_t at = 0; at < size_bytes; at += kLineBytes) _mm_clflush(begin + at);
  }
  _mm_mfence();
}
#elif defined(__aarch64__)
void Flush(std::byte* begin, int64_t size_bytes) {
  for (int64_t at = 0; at < size_bytes; at += kLineBytes)
    __asm__ volatile("dc civac, %0" : : "r"(begin + at) : "memory");
  __asm__ volatile("dsb sy" : : : "memory");
}
#else
void Flush(std::byte* /*begin*/, int64_t /*size_bytes*/) {}
#endif

}  // namespace

Result<TrialMemory> TrialMemory::Create(int64_t window_bytes, DType dtype, CpuAttention* workers,
                                        Device* device) {
  const int64_t num_windows =
      std::clamp<int64_t>(kMaxBytes / (window_bytes * workers->num_threads()), 2, kMaxWindows);
  const int64_t part_bytes = num_windows * window_bytes;
  TANDEM_ASSIGN_OR_RETURN(Buffer buffer,
                          device->Allocate(static_cast<size_t>(part_bytes * workers->num_threads()),
                                           MemoryKind::kPinned, "a trial of CPU kernels"));
  TrialMemory memory(std::move(buffer), window_bytes, num_windows, workers);
  const std::vector<std::byte> pattern = RandomPattern(dtype);
  const auto pattern_bytes = static_cast<int64_t>(pattern.size());
  workers->RunOnWorkers([&](int thread) {
    for (int64_t at = 0; at < part_bytes; at += pattern_bytes) {
      std::memcpy(memory.Window(thread, 0) + at, pattern.data(),
                  static_cast<size_t>(std::min(pattern_bytes, part_bytes - at)));
    }
    Flush(memory.Window(thread, 0), part_bytes);
  });
  return memory;
}

std::vector<double> TrialMemory::RunRound(size_t num_runs, const Run& run) {
  const auto num_threads = static_cast<size_t>(workers_->num_threads());
  std::vector<std::vector<double>> seconds(num_threads, std::vector<double>(num_runs));
  std::atomic<size_t> num_ready{0};
  workers_->RunOnWorkers([&](int thread) {
    for (size_t i = 0; i < num_runs; ++i) {
      const int64_t window = num_runs_ + static_cast<int64_t>(i);
      // Flushing translates addresses: of a window that is read half of the windows later, when they have
      // been forgotten.
      Flush(Window(thread, window + num_windows_ / 2), window_bytes_);
      num_ready.fetch_add(1, std::memory_order_relaxed);
      WaitAWhile([&] { return num_ready.load(std::memory_order_relaxed) >= (i + 1) * num_threads; });
      const double begin = ThreadSeconds();
      run(i, thread, Window(thread, window));
      seconds[static_cast<size_t>(thread)][i] = ThreadSeconds() - begin;
    }
  });
  num_runs_ += static_cast<int64_t>(num_runs);
  std::vector<double> means(num_runs);
  for (const std::vector<double>& of_thread : seconds) {
    for (size_t i = 0; i < num_runs; ++i) means[i] += of_thread[i] / static_cast<double>(num_threads);
  }
  return means;
}

}  // namespace tandem
