// Products with quantized weights on the streams of a GPU: which way is taken, and the memory that it needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/cuda/linear/cuda_linear_weight.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/quantized/code_upload.h"
#include "ops/cuda/linear/quantized/cuda_quantized_weight.h"
#include "ops/linear.h"

namespace tandem {

// Up to here codes are multiplied as they are. Of more rows the weight is dequantized, in slabs of outputs,
// and cuBLASLt multiplies: that reads and writes some 9 times the bytes of 4 bits, once, and computes faster.
// Reckoned, not measured: about 0.55 of the tensor cores' rate with codes, 0.9 without, 120 us for the values
// of a layer of Llama-3.1-8B.
constexpr int64_t kMaxCodeRows = 256;
// Of a slab, at most.
constexpr size_t kDequantizedBytes = size_t{256} << 20;

// Any thread, one at a time a stream.
class QuantizedProducts {
 public:
  // All outlive this.
  QuantizedProducts(Device* device, LinearRunner* runner) : device_(device), runner_(runner) {}

  Result<std::unique_ptr<QuantizedLinearWeight>> CreateWeight(std::shared_ptr<WeightUpload> upload,
                                                              const LinearShape& shape,
                                                              const WeightFormat& format);
  // Memory that Prepare will take on the first stream, for the weights made so far.
  size_t StreamBytes() const;
  // Takes a stream's memory if it has none yet, as LinearRunner::PrepareWorkspace does, which is called
  // before.
  void Prepare(CudaStream& stream);

  // Whether RunCodes takes the product; else slabs are for it.
  bool UsesCodes(const MatrixView& x, const CudaQuantizedWeight& weight) const;
  void RunCodes(CudaStream& stream, const MatrixView& x, const CudaQuantizedWeight& weight,
                const MatrixView& y);

  // Outputs of a slab; all but the last have as many.
  static int64_t SlabOutputs(const CudaQuantizedWeight& weight);
  // The values of a slab, in memory of the stream that the next slab takes.
  CudaLinearWeight Slab(CudaStream& stream, const CudaQuantizedWeight& weight, int64_t first_output);

  void ReleaseStaging() { code_upload_->ReleaseStaging(); }

 private:
  struct StreamMemory {
    Buffer counters;
    Buffer values;
  };

  StreamMemory& MemoryOf(CudaStream& stream);

  Device* device_;
  LinearRunner* runner_;
  std::shared_ptr<CodeUpload> code_upload_ = std::make_shared<CodeUpload>(device_);
  mutable std::mutex mutex_;
  size_t values_bytes_ = 0;  // of the largest slab; 0: no weight was made
  std::unordered_map<cudaStream_t, StreamMemory> memory_;
};

}  // namespace tandem
