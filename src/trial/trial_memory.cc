#include "trial/trial_memory.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tandem {
namespace {

constexpr int64_t kLineBytes = 64;

std::vector<std::byte> RandomPattern(DType dtype) {
  // Odd, so that the same numbers are at other places of every piece.
  constexpr size_t kNumbers = 24'571;
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<std::byte> pattern(kNumbers * DTypeSize(dtype));
  for (size_t i = 0; i < kNumbers; ++i) {
    const float value = uniform(random);
    std::byte* to = pattern.data() + i * DTypeSize(dtype);
    if (dtype == DType::kF32) {
      std::memcpy(to, &value, sizeof value);
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
      std::memcpy(to, &bits, sizeof bits);
    }
  }
  return pattern;
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
#else
void Flush(std::byte* /*begin*/, int64_t /*size_bytes*/) {}
#endif

}  // namespace

Result<TrialMemory> TrialMemory::Create(int64_t part_bytes, DType dtype, CpuAttention* workers,
                                        Device* device) {
  TANDEM_ASSIGN_OR_RETURN(Buffer buffer,
                          device->Allocate(static_cast<size_t>(part_bytes * workers->num_threads()),
                                           MemoryKind::kPinned, "a trial of CPU kernels"));
  TrialMemory memory(std::move(buffer), part_bytes, workers);
  const std::vector<std::byte> pattern = RandomPattern(dtype);
  const auto pattern_bytes = static_cast<int64_t>(pattern.size());
  workers->RunOnWorkers([&](int thread) {
    for (int64_t at = 0; at < part_bytes; at += pattern_bytes) {
      std::memcpy(memory.part(thread) + at, pattern.data(),
                  static_cast<size_t>(std::min(pattern_bytes, part_bytes - at)));
    }
  });
  return memory;
}

void TrialMemory::Evict() const {
  workers_->RunOnWorkers([this](int thread) { Flush(part(thread), part_bytes_); });
}

double MeanThreadSeconds(CpuAttention* workers, const std::function<void(int thread)>& work) {
  std::vector<double> seconds(static_cast<size_t>(workers->num_threads()));
  workers->RunOnWorkers([&](int thread) {
    const auto begin = std::chrono::steady_clock::now();
    work(thread);
    seconds[static_cast<size_t>(thread)] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  });
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

}  // namespace tandem
