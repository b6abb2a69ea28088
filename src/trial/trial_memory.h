// Memory for trials that is read as in serving: by each thread its own part, from beyond the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/dtype.h"
#include "base/result.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"

namespace tandem {

// That a thread reads in a run: some hundred microseconds.
constexpr int64_t kTrialRunBytes = int64_t{2} << 20;

class TrialMemory {
 public:
  // One part for each worker, written by it first: on a machine with several nodes it lies beside the thread.
  // Numbers in [-1, 1) of the type. workers, device: outlive the object. Errors: kResourceExhausted.
  static Result<TrialMemory> Create(int64_t part_bytes, DType dtype, CpuAttention* workers, Device* device);

  std::byte* part(int thread) const { return memory_.as<std::byte>() + thread * part_bytes_; }
  // Takes all parts out of the caches, so that few bytes do for a trial whatever the size of a cache that is
  // shared with others. Where the processor has no instruction for it the parts stay where they are.
  void Evict() const;

 private:
  TrialMemory(Buffer memory, int64_t part_bytes, CpuAttention* workers)
      : memory_(std::move(memory)), part_bytes_(part_bytes), workers_(workers) {}

  Buffer memory_;
  int64_t part_bytes_;
  CpuAttention* workers_;
};

// Runs work(thread) on all workers at once. Returns the seconds it took a thread on average: one that lost its
// core for a moment does not stand for all.
double MeanThreadSeconds(CpuAttention* workers, const std::function<void(int thread)>& work);

}  // namespace tandem
