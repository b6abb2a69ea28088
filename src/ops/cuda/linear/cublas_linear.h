// Linear operations of the cuda backend: an own kernel for few rows, cuBLASLt with measured algorithms for
// more, and own kernels for some hundred and for a gate-up product of many where they are faster. Quantized
// weights: an own kernel for up to some hundred rows, their values and the above for more; those of FP8 with
// a scale a row are multiplied by cuBLASLt as they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/linear_algorithm.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/linear_tuning_file.h"
#include "ops/cuda/linear/quantized/quantized_products.h"
#include "ops/cuda/linear/weight_upload.h"

namespace tandem {

// Any thread, one at a time a stream.
class CublasLinear {
 public:
  // Reads what earlier starts measured. device: of the cuda backend; outlives this.
  CublasLinear(Device* device, const CudaOpsOptions& options);

  Result<std::unique_ptr<LinearWeight>> CreateWeight(int64_t out_features, int64_t in_features, DType dtype);
  // Ops::CreateGateUpWeight.
  Result<std::unique_ptr<LinearWeight>> CreateGateUpWeight(int64_t mlp, int64_t in_features, DType dtype);
  // Ops::CreateQuantizedWeight.
  Result<std::unique_ptr<QuantizedLinearWeight>> CreateQuantizedWeight(const QuantizedWeightShape& shape,
                                                                       const WeightFormat& format);
  // Ops::UnallocatedBytes.
  size_t UnallocatedBytes() const;
  // Ops::Linear. The first call on a stream must not be one that is captured.
  void Run(CudaStream& stream, const LinearArgs& args);
  // Ops::GateUp. The same holds.
  void RunGateUp(CudaStream& stream, const GateUpArgs& args);
  // Ops::TuneLinear. Measures the row counts that no earlier start has measured; weights of 16 bits and FP8
  // only. Of other quantized weights those row counts that need their values.
  void Tune(CudaStream& stream, const LinearTuning& tuning);
  std::string Description() const;

 private:
  struct Choices {
    std::map<int64_t, LinearAlgorithm> measured;  // by row count
    // By row count and alignment: cuBLASLt's first choices, and what turned out to run for a call.
    std::unordered_map<int64_t, LinearAlgorithm> first;
    std::unordered_map<int64_t, LinearAlgorithm> resolved;
  };

  // Takes what the stream needs, and gives back what loading needed. quantized: null if no weight goes
  // its ways.
  void Prepare(CudaStream& stream, const CudaCodedWeight* quantized);
  // With weights of floats, or of FP8 that cuBLASLt multiplies.
  void RunDense(CudaStream& stream, const LinearArgs& args);
  void RunGateUpDense(CudaStream& stream, const GateUpArgs& args);
  void TuneDense(CudaStream& stream, const LinearTuning& tuning);

  void RunQuantized(CudaStream& stream, const LinearArgs& args, const CudaCodedWeight& weight);
  void RunGateUpQuantized(CudaStream& stream, const GateUpArgs& args, const CudaCodedWeight& weight);
  // Whether RunDense takes the weight, as CudaFp8Weight::AsLinear.
  bool IsDenseFp8(const CudaCodedWeight& weight) const;
  bool IsDenseFp8(const CudaCodedWeight& weight, const MatrixView& x) const;
  void TuneQuantized(CudaStream& stream, const LinearTuning& tuning, const CudaCodedWeight& weight);

  // Whether the product has so few rows that its algorithm is not measured.
  bool UsesSkinny(const LinearArgs& args) const;
  LinearAlgorithm Choose(const LinearArgs& args);
  // That of the next larger measured row count, or the largest.
  FusedGateUp ChooseFused(const GateUpArgs& args);
  LinearAlgorithm Resolve(const LinearArgs& args, int64_t alignment, Choices* choices);

  Device* device_;
  CudaOpsOptions options_;
  LinearRunner runner_;
  LinearTuningFile file_;
  QuantizedProducts quantized_;
  std::shared_ptr<WeightUpload> upload_;
  std::atomic<bool> has_dense_fp8_ = false;
  std::mutex mutex_;
  std::map<ProductKind, Choices> choices_;
};

}  // namespace tandem
