#include "ops/cuda/cuda_ops.h"

#include <fmt/format.h>

#include "device/cuda/cuda_device.h"
#include "ops/cuda/kv_copy/kv_copy.h"
#include "ops/cuda/linear/cublas_linear.h"
#include "ops/cuda/sampling/cuda_sampler.h"

namespace tandem {

CudaOps::CudaOps(Device* device, const CudaOpsOptions& options)
    : device_(device),
      target_(CudaTargetOf(*device)),
      options_(options),
      linear_(std::make_unique<CublasLinear>(device, options)),
      sampler_(std::make_unique<CudaSampler>(device)),
      kv_copier_(std::make_unique<KvCopier>(device)) {}

CudaOps::~CudaOps() = default;

std::string CudaOps::Description() const {
  return fmt::format("{}; attention: own kernel for decodes, FlashInfer's for prefills",
                     linear_->Description());
}

std::unique_ptr<Ops> CreateCudaOps(Device* device, const CudaOpsOptions& options) {
  return std::make_unique<CudaOps>(device, options);
}

}  // namespace tandem
