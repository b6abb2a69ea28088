#include "cli/memory_bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace tandem {
namespace {

// 64 bytes at once, whatever registers the compiler has for it.
using CacheLine = uint64_t __attribute__((vector_size(64)));

constexpr int kNumPasses = 5;

class Mapping {
 public:
  explicit Mapping(size_t size_bytes) : size_bytes_(size_bytes) {
    data_ = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) data_ = nullptr;
    if (data_ != nullptr) madvise(data_, size_bytes, MADV_HUGEPAGE);
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, size_bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  CacheLine* data() const { return static_cast<CacheLine*>(data_); }

 private:
  void* data_;
  size_t size_bytes_;
};

uint64_t SumLines(const CacheLine* lines, size_t num_lines) {
  CacheLine sums[4] = {};
  for (size_t i = 0; i + 4 <= num_lines; i += 4) {
    for (size_t k = 0; k < 4; ++k) sums[k] += lines[i + k];
  }
  const CacheLine sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[3] + sum[7];
}

// Bytes per second of the best pass.
double Measure(int num_threads, size_t bytes_per_thread) {
  const size_t num_lines = bytes_per_thread / sizeof(CacheLine);
  std::atomic<uint64_t> sink{0};  // keeps the reads from being optimized away
  std::atomic<bool> failed{false};
  std::barrier gate(num_threads + 1);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&] {
      const Mapping mapping(num_lines * sizeof(CacheLine));
      if (mapping.data() == nullptr) {
        failed = true;
      } else {
        std::memset(mapping.data(), 1, num_lines * sizeof(CacheLine));
      }
      for (int pass = 0; pass < kNumPasses; ++pass) {
        gate.arrive_and_wait();
        if (mapping.data() != nullptr) sink += SumLines(mapping.data(), num_lines);
        gate.arrive_and_wait();
      }
    });
  }
  double best_seconds = 1e30;
  for (int pass = 0; pass < kNumPasses; ++pass) {
    gate.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    gate.arrive_and_wait();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best_seconds = std::min(best_seconds, seconds.count());
  }
  for (std::thread& thread : threads) thread.join();
  if (failed) return 0;
  return static_cast<double>(num_lines * sizeof(CacheLine)) * num_threads / std::max(best_seconds, 1e-9);
}

}  // namespace

MemoryBandwidth MeasureReadBandwidth(int num_threads, int64_t buffer_bytes) {
  const int threads = std::max(num_threads, 1);
  const auto total = static_cast<size_t>(std::max<int64_t>(buffer_bytes, 1 << 20));
  MemoryBandwidth bandwidth;
  bandwidth.num_threads = threads;
  bandwidth.one_thread_bytes_per_s = Measure(1, total);
  bandwidth.all_threads_bytes_per_s = Measure(threads, total / static_cast<size_t>(threads));
  return bandwidth;
}

}  // namespace tandem
