// Runs a product with a given algorithm.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/cuda/linear/cublaslt_product.h"
#include "ops/cuda/linear/cuda_linear_weight.h"
#include "ops/cuda/linear/linear_algorithm.h"

namespace tandem {

// CHECKs that weight is of the cuda backend.
const CudaLinearWeight& AsCudaLinearWeight(const LinearWeight* weight);

ProductKind ShapeOf(const CudaLinearWeight& weight, DType y_dtype);

// The handle of cuBLASLt, and memory for each stream that products work in. Any thread, one at a time a
// stream.
class LinearRunner {
 public:
  explicit LinearRunner(Device* device);
  ~LinearRunner();
  LinearRunner(const LinearRunner&) = delete;
  LinearRunner& operator=(const LinearRunner&) = delete;

  const CudaTarget& target() const { return target_; }
  bool in_slice() const { return sm_limit_ > 0; }
  // args.weight describes the bias as well. method: one of cuBLASLt's.
  CublasLtProduct Product(LinearMethod method, const LinearArgs& args, bool separate_bias) const;
  // cuBLASLt's own first choice. Empty: it cannot do the product.
  std::optional<LinearAlgorithm> FirstChoice(const LinearArgs& args) const;
  bool CanRun(const LinearArgs& args, const LinearAlgorithm& algorithm) const;
  // Takes the stream's workspace if it has none yet. Allocates: not while the stream is being captured. True
  // if it had none.
  bool PrepareWorkspace(CudaStream& stream);
  // Of the stream's workspace, kLinearWorkspaceBytes. CHECKs that it has one.
  void* WorkspaceMemory(const CudaStream& stream) { return WorkspaceOf(stream).memory.data(); }
  // False if cuBLASLt refuses; nothing is enqueued then.
  bool Run(CudaStream& stream, const LinearArgs& args, const LinearAlgorithm& algorithm);

  // Whether RunGateUp can run a fused product.
  bool CanFuse(const GateUpArgs& args) const;
  // algorithm.fused, or if that is none the product and SiluMul, which a streamed product does itself if it
  // can. False as in Run.
  bool RunGateUp(CudaStream& stream, const GateUpArgs& args, const LinearAlgorithm& algorithm);

 private:
  Device* device_;
  CudaTarget target_;
  int sm_limit_ = 0;  // 0: the whole GPU
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  struct Workspace {
    Buffer memory;  // kLinearWorkspaceBytes
    Buffer arrivals;
  };
  // Of a stream that has one.
  Workspace& WorkspaceOf(const CudaStream& stream);
  StreamedWorkspace StreamedWorkspaceOf(const CudaStream& stream);

  std::unordered_map<cudaStream_t, Workspace> workspaces_;
};

}  // namespace tandem
