// The host backend: ordinary memory, streams that are FIFO worker threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "device/device.h"
#include "device/host/compute_pool.h"

namespace tandem {

struct HostDeviceOptions {
  int num_compute_threads = 0;  // of a kCompute stream; 0: one for each physical core
};

// A stream of the host backend. Ops of ops/host enqueue their work here.
class HostStream : public Stream {
 public:
  using Work = std::function<void(ComputePool&)>;
  // Runs work on the stream's thread, after everything enqueued before. What it points to stays alive
  // until then.
  virtual void Enqueue(Work work) = 0;
};

// The HostStream behind a stream of a host device; CHECKs that it is one.
HostStream& AsHostStream(Stream& stream);

std::unique_ptr<Device> CreateHostDevice(const HostDeviceOptions& options);

}  // namespace tandem
