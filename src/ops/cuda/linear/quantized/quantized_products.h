// Products with quantized weights on the streams of a GPU: which way is taken, and the memory that it needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/cuda/linear/cuda_linear_weight.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/quantized/code_rows.h"
#include "ops/cuda/linear/quantized/code_upload.h"
#include "ops/cuda/linear/quantized/coded_weight.h"
#include "ops/linear.h"

namespace tandem {

// Of a slab, at most.
constexpr size_t kDequantizedBytes = size_t{256} << 20;

// Any thread, one at a time a stream.
class QuantizedProducts {
 public:
  // All outlive this. streams: whether products of codes may be streamed.
  QuantizedProducts(Device* device, LinearRunner* runner, const CodeRows& code_rows, bool streams)
      : device_(device), runner_(runner), code_rows_(code_rows) {
    if (!streams) code_rows_.min_streamed = std::numeric_limits<int64_t>::max();
  }

  // Whether there are kernels for weights of a format with rows of in_features at dtype.
  static bool Keeps(const Device& device, const WeightFormat& format, int64_t in_features, DType dtype);
  // Errors: kResourceExhausted; kUnsupported unless Keeps.
  Result<std::unique_ptr<QuantizedLinearWeight>> CreateWeight(std::shared_ptr<WeightUpload> upload,
                                                              const QuantizedWeightShape& shape,
                                                              const WeightFormat& format);
  // A weight that will be prepared.
  void ExpectValues(const CudaCodedWeight& weight);
  // Memory that Prepare will take on the first stream, for the weights expected so far.
  size_t StreamBytes() const;
  // Takes a stream's memory if it has none yet, as LinearRunner::PrepareWorkspace does, which is called
  // before. weight: that will be multiplied.
  void Prepare(CudaStream& stream, const CudaCodedWeight& weight);

  // Whether RunCodes takes the product; else slabs are for it.
  bool UsesCodes(const MatrixView& x, const CudaCodedWeight& weight, const MatrixView& y) const;
  void RunCodes(CudaStream& stream, const MatrixView& x, const CudaCodedWeight& weight, const MatrixView& y);
  // y = silu(gate) * up of the product with a gate-up weight, in one kernel; false: none does that.
  bool RunGateUpCodes(CudaStream& stream, const MatrixView& x, const CudaCodedWeight& weight,
                      const MatrixView& y);

  // Outputs of a slab; all but the last have as many.
  static int64_t SlabOutputs(const CudaCodedWeight& weight);
  // The values of a slab, in memory of the stream that the next slab takes.
  CudaLinearWeight Slab(CudaStream& stream, const CudaCodedWeight& weight, int64_t first_output);

  void ReleaseStaging() { code_upload_->ReleaseStaging(); }

 private:
  struct StreamMemory {
    Buffer counters;
    Buffer values;
  };

  StreamMemory& MemoryOf(CudaStream& stream);
  QuantizedWorkspace WorkspaceOf(CudaStream& stream);

  Device* device_;
  LinearRunner* runner_;
  CodeRows code_rows_;
  std::shared_ptr<CodeUpload> code_upload_ = std::make_shared<CodeUpload>(device_);
  mutable std::mutex mutex_;
  size_t values_bytes_ = 0;  // of the largest slab; 0: no weight is expected
  std::unordered_map<cudaStream_t, StreamMemory> memory_;
};

}  // namespace tandem
