// Which algorithms a product may be computed by, of cuBLASLt's and the streamed product's, and how long each
// takes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/linear_algorithm.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/linear_timer.h"

namespace tandem {

struct LinearCandidate {
  LinearAlgorithm algorithm;
  double us = 0.0;
};

// They compute alike, whatever was measured of them and whatever is fused.
bool SameAlgorithm(const LinearAlgorithm& a, const LinearAlgorithm& b);
// The first count of them.
void SortByTime(std::vector<LinearCandidate>* candidates, size_t count);

// Measures each candidate by itself, twice at most: what is fast here has yet to be measured beside its
// rivals, and its result to be looked at.
class LinearSearch {
 public:
  using Clock = std::chrono::steady_clock;

  // runner and timer outlive this; timer has its matrices. options: whether streamed products take part.
  LinearSearch(LinearRunner* runner, LinearTimer* timer, const CudaOpsOptions& options);

  // The fastest first; one at least, if any can run. wide: mutate what the heuristics give; else hints and
  // heuristics only.
  std::vector<LinearCandidate> Find(int64_t rows, const std::vector<LinearAlgorithm>& hints, bool wide,
                                    Clock::time_point deadline);

 private:
  void TryHeuristics(int64_t rows, size_t max_count);
  void TryStreamed(int64_t rows);
  void TryFp8Codes(int64_t rows);
  void TrySplitsAndClusters(int64_t rows, const LinearAlgorithm& base);
  void TryTilesAndStages(int64_t rows, const LinearAlgorithm& base);
  // Measures algorithm and adds it to candidates_, unless it was there, cannot run or time is up.
  void Try(int64_t rows, const LinearAlgorithm& algorithm);
  // Those that are measured, the fastest first.
  std::vector<LinearAlgorithm> BestOfCublasLt(size_t max_count) const;

  LinearRunner* runner_;
  LinearTimer* timer_;
  CudaOpsOptions options_;
  std::vector<LinearCandidate> candidates_;
  Clock::time_point deadline_;
};

}  // namespace tandem
