#include "schedule/strategy.h"

#include "base/param_error.h"
#include "schedule/gpu_only.h"

namespace tandem {

Result<std::unique_ptr<Strategy>> CreateStrategy(std::string_view name) {
  // auto chooses among the strategies there are; with one the choice is made.
  if (name == "gpu-only" || name == "auto")
    return std::unique_ptr<Strategy>(std::make_unique<GpuOnlyStrategy>());
  return MakeParamError(ErrorCode::kUnsupported, "strategy",
                        "strategy '{}' is not available in this build; there are: auto, gpu-only", name);
}

}  // namespace tandem
