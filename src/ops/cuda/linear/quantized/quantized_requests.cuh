// How slices come into the ring of quantized_kernel.cuh.
#pragma once

#include <cstdint>

#include "ops/cuda/linear/quantized/quantized_slice.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// Brings slices into the ring. Every thread copies the same places of every stage.
template <typename Format, typename Tiling>
struct SliceRequests {
  using Plan = SharedPlan<Format, Tiling>;
  static constexpr int kSliceSize = Format::kLayout.slice_size();

  uint64_t policy;
  const unsigned char* records;  // of the block's first panel
  int64_t panel_bytes;
  int num_panels;  // 1 or 2
  const unsigned char* x;
  int64_t x_stride_bytes;
  int rows;
  int in_features;

  __device__ __forceinline__ void Records(uint32_t stage, int slice, int thread) const {
    constexpr int kPanelChunks = Plan::kRecordsBytes / 2 / 16;
    const unsigned char* from = records + static_cast<int64_t>(slice) * (Plan::kRecordsBytes / 2);
#pragma unroll
    for (int begin = 0; begin < 2 * kPanelChunks; begin += kQuantizedThreads) {
      const int chunk = begin + thread;
      if (chunk >= 2 * kPanelChunks) break;
      const int panel = chunk / kPanelChunks;
      const int64_t offset = panel * panel_bytes + (chunk - panel * kPanelChunks) * 16;
      CopyAsync(stage + static_cast<uint32_t>(chunk * 16), from + (panel < num_panels ? offset : 0),
                panel < num_panels, policy);
    }
  }

  __device__ __forceinline__ void X(uint32_t stage, int slice, int thread) const {
    constexpr int kRowChunks = kSliceSize / 8;
    constexpr int kNumChunks = Tiling::kRows * kRowChunks;
    const uint32_t to = stage + Plan::kRecordsBytes;
#pragma unroll
    for (int begin = 0; begin < kNumChunks; begin += kQuantizedThreads) {
      const int number = begin + thread;
      if (number >= kNumChunks) break;
      const int row = number / kRowChunks;
      const int chunk = number % kRowChunks;
      const int k = slice * kSliceSize + chunk * 8;
      const bool valid = row < rows && k < in_features;
      const auto at = static_cast<uint32_t>(row * Plan::kXPitch + chunk * 16);
      CopyAsync(to + at, x + (valid ? row * x_stride_bytes + k * 2 : 0), valid);
    }
  }
};

// Brings the records of slices by the copy engine where there is one: one thread asks, and a slot's barrier
// says when they are there. (Rows of x are too short for that: 8 of 256 bytes take longer than 4 KiB of
// records.)
template <typename Format, typename Tiling>
struct RecordRequests {
  using Plan = SharedPlan<Format, Tiling>;
#if __CUDA_ARCH__ >= 900
  static constexpr bool kBulk = true;
#else
  static constexpr bool kBulk = false;
#endif

  const SliceRequests<Format, Tiling>& what;
  uint32_t barriers;  // kDepth of 8 bytes, in shared memory

  __device__ __forceinline__ uint32_t BarrierOf(int slot) const {
    return barriers + static_cast<uint32_t>(slot * 8);
  }

  // All threads, before the first request.
  __device__ __forceinline__ void Prepare(int thread) const {
    if constexpr (kBulk) {
      if (thread == 0) {
        for (int slot = 0; slot < Plan::kDepth; ++slot) {
          asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(BarrierOf(slot)) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      }
      __syncthreads();
    }
  }

  // All threads; nobody may still read the slot.
  __device__ __forceinline__ void Request(uint32_t stage, int slot, int slice, int thread) const {
    if constexpr (kBulk) {
      if (thread != 0) return;
      constexpr uint32_t kPanelBytes = Plan::kRecordsBytes / 2;
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(BarrierOf(slot)),
                   "r"(static_cast<uint32_t>(what.num_panels) * kPanelBytes)
                   : "memory");
      const unsigned char* from = what.records + static_cast<int64_t>(slice) * kPanelBytes;
      for (int panel = 0; panel < what.num_panels; ++panel) {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
            "%2, "
            "[%3], %4;" ::"r"(stage + static_cast<uint32_t>(panel) * kPanelBytes),
            "l"(from + panel * what.panel_bytes), "r"(kPanelBytes), "r"(BarrierOf(slot)), "l"(what.policy)
            : "memory");
      }
    } else {
      what.Records(stage, slice, thread);
    }
  }

  // round: how often the slot has been waited for. Where records come as x does, waiting for x is enough.
  __device__ __forceinline__ void WaitFor(int slot, int round) const {
    if constexpr (kBulk) {
      asm volatile(
          "{\n"
          ".reg .pred there;\n"
          "again:\n"
          "mbarrier.try_wait.parity.shared.b64 there, [%0], %1;\n"
          "@!there bra again;\n"
          "}\n" ::"r"(BarrierOf(slot)),
          "r"(round % 2)
          : "memory");
    }
  }
};

#endif

}  // namespace tandem
