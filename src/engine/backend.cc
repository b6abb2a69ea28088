#include "engine/backend.h"

#include "base/param_error.h"
#include "device/host/host_device.h"

namespace tandem {

Result<Backend> CreateBackend(std::string_view name, int cpu_threads) {
  if (name != "host") {
    return MakeParamError(ErrorCode::kUnsupported, "device",
                          "device '{}' is not available in this build; there is: host", name);
  }
  Backend backend;
  backend.device = CreateHostDevice({.num_compute_threads = cpu_threads});
  backend.ops = CreateHostOps();
  // A larger chunk would make decodes wait longer than it saves.
  backend.default_max_num_batched_tokens = 512;
  return backend;
}

}  // namespace tandem
