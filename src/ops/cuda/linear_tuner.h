// Finds the fastest algorithm of a product by measurement.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/cuda/linear_algorithm.h"
#include "ops/cuda/linear_runner.h"
#include "ops/linear.h"

namespace tandem {

// Candidates run in graphs, over weights that the L2 does not hold. Row counts that are powers of two are
// searched widely; the others try what was best for their neighbours.
class LinearTuner {
 public:
  // All outlive this. stream has a workspace; tuning.weights: 16-bit.
  LinearTuner(Device* device, LinearRunner* runner, CudaStream* stream, const LinearTuning& tuning);
  ~LinearTuner();
  LinearTuner(const LinearTuner&) = delete;
  LinearTuner& operator=(const LinearTuner&) = delete;

  // row_counts: ascending. Takes a few seconds at most; counts that time or memory did not suffice for are
  // missing.
  std::map<int64_t, LinearAlgorithm> Measure(const std::vector<int64_t>& row_counts);

 private:
  using Clock = std::chrono::steady_clock;
  struct Candidate {
    LinearAlgorithm algorithm;
    double us = 0.0;
  };

  bool AllocateMatrices(int64_t max_rows);
  LinearArgs Args(int64_t rows, size_t weight) const;

  // The fastest first. wide: mutate what the heuristics give; else hints and heuristics only.
  std::vector<Candidate> Search(int64_t rows, const std::vector<LinearAlgorithm>& hints, bool wide,
                                Clock::time_point deadline);
  void TryHeuristics(int64_t rows, size_t max_count);
  void TrySkinny(int64_t rows);
  void TrySplitsAndClusters(int64_t rows, const LinearAlgorithm& base);
  void TryTilesAndStages(int64_t rows, const LinearAlgorithm& base);
  // Measures algorithm and adds it to candidates_, unless it was there, cannot run or time is up.
  void Try(int64_t rows, const LinearAlgorithm& algorithm);
  // The measured cuBLASLt algorithms, the fastest first.
  std::vector<LinearAlgorithm> BestOfCublasLt(size_t max_count) const;
  // Measures the best again, side by side, and puts the fastest one with the right result in front. False:
  // none.
  bool Decide(int64_t rows, std::vector<Candidate>* candidates);

  // Null if cuBLASLt refuses.
  std::unique_ptr<Graph> Capture(int64_t rows, const LinearAlgorithm& algorithm);
  // Time of one product in a replay of graph.
  double ReplayUs(Graph& graph, int64_t rows);
  int64_t ProductsInGraph(int64_t rows) const;
  // Some rows of y as algorithm computes them. Empty if it does not run.
  std::vector<float> ResultOf(int64_t rows, const LinearAlgorithm& algorithm);

  Device* device_;
  LinearRunner* runner_;
  CudaStream* stream_;
  LinearTuning tuning_;
  LinearShape shape_;
  bool use_row_major_ = false;
  Buffer x_;
  Buffer y_;
  Buffer flush_;
  std::array<cudaEvent_t, 2> events_ = {};
  size_t next_weight_ = 0;
  std::vector<Candidate> candidates_;
  Clock::time_point deadline_;
};

}  // namespace tandem
