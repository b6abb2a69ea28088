// The sampling op of the cuda backend: rows that just take the best logit in one kernel at memory speed, all
// others in one that can do everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/cuda/sampling/sampling_kernels.h"
#include "ops/sampling.h"

namespace tandem {

// Thread-safe. For equal logits the drawn token is the host backend's (token_sampler.h), except where sums
// that are rounded differently decide, and with top_p, where the host goes through the tokens in another
// order. At most kMaxTopLogits top log-probabilities.
class CudaSampler {
 public:
  // device outlives the sampler and the streams that it is used with.
  explicit CudaSampler(Device* device);
  ~CudaSampler();

  void Sample(CudaStream& stream, const SampleArgs& args);

 private:
  class Slot;
  struct SlotPool;

  std::shared_ptr<Slot> TakeSlot();
  const SampleRowsLayout& LayoutFor(CudaStream& stream);

  Device* device_;
  std::shared_ptr<SlotPool> pool_;
  std::once_flag layout_once_;
  SampleRowsLayout layout_;
};

}  // namespace tandem
