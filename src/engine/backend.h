// Chooses the device backend by name: the one place that knows which there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "device/device.h"
#include "engine/engine_options.h"
#include "ops/ops.h"

namespace tandem {

struct Backend {
  // Order of members: the ops use the device.
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  std::vector<DType> dtypes;  // that the model can be computed in, the default first
  int64_t default_max_num_batched_tokens = 0;
  // Up to max_num_seqs; empty: graphs do not pay here.
  std::vector<int64_t> graph_batch_sizes;
  // Device memory that the ops and the driver take beside what is allocated for a model.
  size_t workspace_bytes = 0;
  // Whether attention over the cpu tier reaches the rows of this backend.
  bool has_cpu_tier = false;
};

// Errors, with a flag as param: kUnsupported (not in this build, names what there is), kUnavailable (no GPU,
// no driver), kInvalidArgument (a limit that this GPU cannot keep).
Result<Backend> CreateBackend(const EngineOptions& options);

}  // namespace tandem
