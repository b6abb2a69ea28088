// Chooses the device backend by name: the one place that knows which there are.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "ops/ops.h"

namespace tandem {

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  int64_t default_max_num_batched_tokens = 0;
};

// name: as --device takes it. cpu_threads: 0 for one each physical core. Errors: kUnsupported, naming what
// there is.
Result<Backend> CreateBackend(std::string_view name, int cpu_threads);

}  // namespace tandem
