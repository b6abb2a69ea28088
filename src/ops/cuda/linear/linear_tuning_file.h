// Measured choices of algorithms, kept on disk between starts.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "device/device.h"
#include "ops/cuda/linear/linear_algorithm.h"

namespace tandem {

// One file for each GPU, slice and version of cuBLASLt:
//   {"format": 6, "gpu": "NVIDIA-H200-sm90-132", "cublaslt": 130100, "has_fused_gate_up": true,
//    "has_streamed": true, "shapes": [
//     {"out": 6144, "in": 4096, "dtype": "bf16", "y": "bf16", "bias": false, "gate_up": false, "rows": [
//       {"rows": 64, "method": "cublaslt", "separate_bias": false, "separate_scales": false,
//        "algorithm": "<128 hex digits>", "us": 12.1},
//       {"rows": 128, "method": "streamed", "kernel": "128-pairs", "us": 14.2}]}]}
// With "dtype": "fp8_e4m3" the method may be "fp8-codes". With "gate_up": true the rows also have "fused"
// (FusedGateUpName) and "fused_us".
class LinearTuningFile {
 public:
  using Content = std::map<ProductKind, std::map<int64_t, LinearAlgorithm>>;

  // folder: made when it is needed; empty: nothing is kept. device: of the cuda backend.
  LinearTuningFile(const Device* device, const std::string& folder);

  // Empty if there is no file. A file that is damaged or of something else is ignored, with a warning.
  // Whether an algorithm runs on this GPU is for the caller to check.
  Content Load() const;
  // Replaces the file as a whole. What goes wrong is a warning. Algorithms that are measured only.
  void Save(const Content& content) const;

  const std::string& path() const { return path_; }

 private:
  std::string gpu_;
  std::string folder_;
  std::string path_;  // empty: none
};

}  // namespace tandem
