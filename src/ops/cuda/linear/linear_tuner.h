// Finds the fastest algorithm for a product by measurement, of cuBLASLt's and of the streamed product's, and
// whether a fused gate-up product is faster.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/linear_algorithm.h"
#include "ops/cuda/linear/linear_runner.h"
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
  using Clock = std::chrono::steady_clock;
  struct Candidate {
    LinearAlgorithm algorithm;
    double us = 0.0;
  };

  // The fastest first. wide: mutate what the heuristics give; else hints and heuristics only.
  std::vector<Candidate> Search(int64_t rows, const std::vector<LinearAlgorithm>& hints, bool wide,
                                Clock::time_point deadline);
  void TryHeuristics(int64_t rows, size_t max_count);
  void TryStreamed(int64_t rows);
  void TryFp8Codes(int64_t rows);
  void TrySplitsAndClusters(int64_t rows, const LinearAlgorithm& base);
  void TryTilesAndStages(int64_t rows, const LinearAlgorithm& base);
  // Measures algorithm and adds it to candidates_, unless it was there, cannot run or time is up.
  void Try(int64_t rows, const LinearAlgorithm& algorithm);
  // Those that are measured, the fastest first.
  std::vector<LinearAlgorithm> BestOfCublasLt(size_t max_count) const;
  static void Take(int64_t rows, const Candidate& candidate, std::map<int64_t, LinearAlgorithm>* best);
  // Measures the first of the candidates again, as they will run: few rows in one replay, many for long.
  void TimeFinalists(int64_t rows, size_t num_finalists, std::vector<Candidate>* candidates);
  // Measures the best again, side by side, and puts the fastest one with the right result in front. False:
  // none.
  bool Decide(int64_t rows, std::vector<Candidate>* candidates);
  // Puts cuBLASLt's first choice in front if the front, measured beside it, is not clearly better.
  void CompareWithFirstChoice(int64_t rows, const LinearAlgorithm& first, std::vector<Candidate>* candidates);
  // Of gate-up weights: measures the fused products beside algorithm and SiluMul, and sets algorithm->fused.
  void ChooseFused(int64_t rows, LinearAlgorithm* algorithm);
  static void SortByTime(std::vector<Candidate>* candidates, size_t count);

  bool IsFp8() const;
  bool IsHot(int64_t rows) const;

  LinearRunner* runner_;
  LinearTimer timer_;
  CudaOpsOptions options_;
  std::vector<Candidate> candidates_;
  Clock::time_point deadline_;
};

}  // namespace tandem
