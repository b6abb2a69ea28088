// What the ops of the cuda backend need of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "device/cuda/cuda_target.h"
#include "device/device.h"

namespace tandem {

class CudaStream : public Stream {
 public:
  virtual cudaStream_t handle() const = 0;
  virtual const CudaTarget& target() const = 0;
  // work runs on the caller of the next Synchronize, or SynchronizeTo an event recorded from now on, after
  // everything enqueued so far has run: results that lie in staging memory become what the caller of an op
  // sees. In order.
  virtual void AfterSynchronize(std::function<void()> work) = 0;
  // Once after a wait for an event in a capture: the next kernel follows work of another stream too, so it
  // cannot begin before a predecessor has ended.
  virtual bool TakeJoin() = 0;
};

// CHECKs that stream is of the cuda backend.
CudaStream& AsCudaStream(Stream& stream);

}  // namespace tandem
