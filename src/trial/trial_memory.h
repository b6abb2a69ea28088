// Memory for trials that is read as in serving: by all threads at once, each its own, from beyond the caches,
// and not at addresses that were translated a moment ago.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"

namespace tandem {

// That a thread reads in a run: some hundred microseconds.
constexpr int64_t kTrialRunBytes = int64_t{2} << 20;

// Numbers in [-1, 1) of the type, to be repeated. kI8, kF8E4M3: bytes of a cache of KvFormat::Of, which are
// codes and halves of scales alike, so that scores are neither infinite nor denormal.
std::vector<std::byte> RandomPattern(DType dtype);

// Windows of window_bytes for each worker, of which a run reads one.
class TrialMemory {
 public:
  // What the run-th run of a round does with a window.
  using Run = std::function<void(size_t run, int thread, const std::byte* window)>;

  // Each worker writes its windows first: on a machine with several nodes they lie beside the thread. Numbers
  // in [-1, 1) of the type. workers, device: outlive the object. Errors: kResourceExhausted.
  static Result<TrialMemory> Create(int64_t window_bytes, DType dtype, CpuAttention* workers, Device* device);

  // Runs 0 .. num_runs - 1 on all workers, one after the other and each at the same time as far as other
  // programs leave them their cores. Seconds of each: how long it kept a core busy, waits for memory included
  // and what others did on that core not, in the mean of the threads.
  std::vector<double> RunRound(size_t num_runs, const Run& run);

 private:
  TrialMemory(Buffer memory, int64_t window_bytes, int64_t num_windows, CpuAttention* workers)
      : memory_(std::move(memory)),
        window_bytes_(window_bytes),
        num_windows_(num_windows),
        workers_(workers) {}
  std::byte* Window(int thread, int64_t window) const {
    return memory_.as<std::byte>() + (thread * num_windows_ + window % num_windows_) * window_bytes_;
  }

  Buffer memory_;
  int64_t window_bytes_;
  int64_t num_windows_;
  int64_t num_runs_ = 0;  // of all rounds so far
  CpuAttention* workers_;
};

}  // namespace tandem
