// Chooses the fastest algorithm for a product, of those that linear_search.h finds, measured beside one
// another as they will run and with the right result, and whether a fused gate-up product is faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/linear_algorithm.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/linear_search.h"
#include "ops/cuda/linear/linear_timer.h"
#include "ops/linear.h"

namespace tandem {

// Row counts that are powers of two are searched widely; the others try what was best for their neighbours.
class LinearTuner {
 public:
  // All outlive this. stream has a workspace, for FP8 too if weights are of it; tuning.weights: 16-bit or
  // FP8. options: whether the choice for many rows is made on a hot GPU, and whether fused and streamed
  // products take part.
  LinearTuner(Device* device, LinearRunner* runner, CudaStream* stream, const LinearTuning& tuning,
              const CudaOpsOptions& options);

  // row_counts: ascending. Takes a few seconds at most; counts that time or memory did not suffice for are
  // missing.
  std::map<int64_t, LinearAlgorithm> Measure(const std::vector<int64_t>& row_counts);

 private:
  using Clock = LinearSearch::Clock;

  static void Take(int64_t rows, const LinearCandidate& candidate, std::map<int64_t, LinearAlgorithm>* best);
  // Measures the first of the candidates again, as they will run: few rows in one replay, many for long.
  void TimeFinalists(int64_t rows, size_t num_finalists, std::vector<LinearCandidate>* candidates);
  // Measures the best again, side by side, and puts the fastest one with the right result in front. False:
  // none.
  bool Decide(int64_t rows, std::vector<LinearCandidate>* candidates);
  // Puts cuBLASLt's first choice in front if the front, measured beside it, is not clearly better.
  void CompareWithFirstChoice(int64_t rows, const LinearAlgorithm& first,
                              std::vector<LinearCandidate>* candidates);
  // Of gate-up weights: measures the fused products beside algorithm and SiluMul, and sets algorithm->fused.
  void ChooseFused(int64_t rows, LinearAlgorithm* algorithm);

  bool IsHot(int64_t rows) const;

  LinearRunner* runner_;
  LinearTimer timer_;
  LinearSearch search_;
  CudaOpsOptions options_;
};

}  // namespace tandem
