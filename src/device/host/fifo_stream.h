// Streams of the host backend: a worker thread each, which runs what is enqueued in order.
#pragma once

#include <memory>
#include <string_view>

#include "device/device.h"

namespace tandem {

// num_threads: that share what an op parallelizes, the worker included.
std::unique_ptr<Stream> CreateFifoStream(int num_threads, std::string_view name);

}  // namespace tandem
