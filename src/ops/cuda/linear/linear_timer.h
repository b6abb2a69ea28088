// Times products as they follow each other in a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/cuda/linear/linear_algorithm.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/linear.h"

namespace tandem {

// Products run in graphs, over weights that the L2 does not hold. All memory is the timer's own, but for the
// weights.
class LinearTimer {
 public:
  // A graph of equal products.
  struct Chain {
    std::unique_ptr<Graph> graph;  // null: none
    int64_t num_products = 0;
  };

  // All outlive this. stream has a workspace.
  LinearTimer(Device* device, LinearRunner* runner, CudaStream* stream, const LinearTuning& tuning);
  ~LinearTimer();
  LinearTimer(const LinearTimer&) = delete;
  LinearTimer& operator=(const LinearTimer&) = delete;

  const ProductKind& shape() const { return shape_; }
  // Before anything else, in place of an earlier call's. Errors: kResourceExhausted.
  Status AllocateMatrices(int64_t max_rows);
  LinearArgs Args(int64_t rows, size_t weight) const;
  // The shape is that of gate-up weights.
  GateUpArgs ArgsOfGateUp(int64_t rows, size_t weight) const;

  // At least min_products, unless they would find their weights in the L2. No graph: cuBLASLt refuses.
  Chain Capture(int64_t rows, const LinearAlgorithm& algorithm, int64_t min_products = 1);
  // Of Ops::GateUp.
  Chain CaptureGateUp(int64_t rows, const LinearAlgorithm& algorithm, int64_t min_products);
  // One product in one replay.
  double TimeUs(const Chain& chain);
  // One product of each chain: medians of replays in turn, between which the GPU does not come to rest.
  std::vector<double> MedianTimesUs(const std::vector<const Chain*>& chains, int num_rounds);
  // One product of each chain where products follow each other for seconds: the power limit then sets the
  // clock, lower for algorithms that take more power. Takes a fifth of a second a chain.
  std::vector<double> SustainedTimesUs(const std::vector<const Chain*>& chains);
  // Some rows of y as algorithm computes them. Empty if it does not run.
  std::vector<float> ResultOf(int64_t rows, const LinearAlgorithm& algorithm);
  std::vector<float> ResultOfGateUp(int64_t rows, const LinearAlgorithm& algorithm);

 private:
  // Enqueues a product with the weight of a number. False if it does not run.
  using Multiply = std::function<bool(size_t weight)>;

  struct EventPair {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };

  Chain CaptureChain(int64_t rows, int64_t min_products, const Multiply& multiply);
  // Some rows of y after multiply. Empty if that fails.
  std::vector<float> SampledRows(const MatrixView& y, const Multiply& multiply);
  void EnqueueReplay(const Chain& chain, const EventPair& events);
  // Replays until so much time has passed. Microseconds a product.
  double ReplayFor(const Chain& chain, double seconds);
  // Waits for the replay.
  static double ElapsedUs(const Chain& chain, const EventPair& events);
  // Made when it is first needed.
  const EventPair& Events(size_t index);
  int64_t NumProducts(int64_t rows, int64_t min_products) const;

  Device* device_;
  LinearRunner* runner_;
  CudaStream* stream_;
  LinearTuning tuning_;
  ProductKind shape_;
  DType x_dtype_;
  Buffer x_;
  Buffer y_;
  Buffer mlp_;  // of gate-up weights
  Buffer flush_;
  std::vector<EventPair> events_;
  size_t next_weight_ = 0;
};

}  // namespace tandem
