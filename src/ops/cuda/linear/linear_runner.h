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

// Products of FP8: of x as FP8, at most, in a stream's memory.
constexpr size_t kMaxFp8XBytes = size_t{64} << 20;
// Rows of a product with a weight of FP8 that are multiplied at once.
int64_t MaxFp8Rows(int64_t in_features);
// Up to here x is not rounded to FP8 unless that has been measured to be faster: memory is the limit anyway.
constexpr int64_t kFewFp8Rows = 64;

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
  // With algorithm's method, one of cuBLASLt's, bias and scales; args.weight describes the bias as well. Of
  // FP8 it is for questions only.
  CublasLtProduct Product(const LinearArgs& args, const LinearAlgorithm& algorithm) const;
  // What is taken unless something else has been measured: cuBLASLt's own first choice, or of few rows with
  // FP8 the own kernel. Empty: nothing can do the product.
  std::optional<LinearAlgorithm> FirstChoice(const LinearArgs& args) const;
  std::optional<LinearAlgorithm> FirstOfCublasLt(const LinearArgs& args) const;
  bool CanRun(const LinearArgs& args, const LinearAlgorithm& algorithm) const;
  // Takes the stream's workspace if it has none yet. Allocates: not while the stream is being captured. True
  // if it had none.
  bool PrepareWorkspace(CudaStream& stream);
  // Takes the stream's memory for products of FP8, Fp8Bytes, if it has none yet. As PrepareWorkspace, which
  // is called before.
  void PrepareFp8(CudaStream& stream);
  static size_t Fp8Bytes();
  // Of the stream's workspace, kLinearWorkspaceBytes. CHECKs that it has one.
  void* WorkspaceMemory(const CudaStream& stream) { return WorkspaceOf(stream).memory.data(); }
  // False if cuBLASLt refuses; nothing that writes y is enqueued then.
  bool Run(CudaStream& stream, const LinearArgs& args, const LinearAlgorithm& algorithm);

  // Whether RunGateUp can run a fused product.
  bool CanFuse(const GateUpArgs& args) const;
  // algorithm.fused, or if that is none the product and SiluMul, which a streamed product, and one of codes
  // of FP8, does itself if it can. False as in Run.
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
    Buffer fp8;  // x as FP8, its scales, counters of the own kernel; empty: no product of FP8 yet
  };
  // Parts of Workspace::fp8.
  struct Fp8Memory {
    uint8_t* x = nullptr;
    float* scales = nullptr;
    uint32_t* counters = nullptr;
  };
  static Fp8Memory PartsOf(const Buffer& fp8);
  CublasLtProduct Product(const LinearArgs& args, const LinearAlgorithm& algorithm,
                          const Fp8Memory& fp8) const;
  bool RunFp8(CudaStream& stream, const LinearArgs& args, const LinearAlgorithm& algorithm);
  Buffer Allocate(const CudaStream& stream, size_t bytes) const;
  // Of a stream that has one.
  Workspace& WorkspaceOf(const CudaStream& stream);
  StreamedWorkspace StreamedWorkspaceOf(const CudaStream& stream);

  std::unordered_map<cudaStream_t, Workspace> workspaces_;
};

}  // namespace tandem
