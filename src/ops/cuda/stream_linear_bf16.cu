#include "ops/cuda/stream_linear_kernel.cuh"

namespace tandem {

void LaunchStreamBF16(CudaStream& stream, const StreamPlan& plan, const CUtensorMap& weight_map,
                      const CUtensorMap& x_map, const StreamArguments& arguments) {
  LaunchPlan<__nv_bfloat16>(stream, plan, weight_map, x_map, arguments);
}

}  // namespace tandem
