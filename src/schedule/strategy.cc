#include "schedule/strategy.h"

#include "schedule/gpu_only.h"

namespace tandem {

Result<std::unique_ptr<Strategy>> CreateStrategy(std::string_view name) {
  // auto chooses among the strategies there are; with one the choice is made.
  if (name == "gpu-only" || name == "auto")
    return std::unique_ptr<Strategy>(std::make_unique<GpuOnlyStrategy>());
  Error error = MakeError(ErrorCode::kUnsupported,
                          "strategy '{}' is not available in this build; there are: auto, gpu-only", name);
  error.param = "strategy";
  return error;
}

}  // namespace tandem
