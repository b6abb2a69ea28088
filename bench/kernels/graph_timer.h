// Times work on a GPU as one CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

class GraphTimer {
 public:
  // stream: of the cuda backend; outlives this.
  explicit GraphTimer(Stream* stream) : stream_(stream) {
    for (cudaEvent_t& event : events_) TANDEM_CUDA_CHECK(cudaEventCreate(&event));
  }
  ~GraphTimer() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  GraphTimer(const GraphTimer&) = delete;
  GraphTimer& operator=(const GraphTimer&) = delete;

  // Microseconds of one replay of what enqueue puts on the stream: the median of some. warm_up: work of the
  // same kind, outside of the graph.
  double TimeUs(const std::function<void()>& warm_up, const std::function<void()>& enqueue) {
    warm_up();
    stream_->Synchronize();
    stream_->BeginCapture();
    enqueue();
    const std::unique_ptr<Graph> graph = stream_->EndCapture();
    constexpr int kReplays = 7;
    const cudaStream_t stream = AsCudaStream(*stream_).handle();
    std::vector<double> times_us;
    stream_->Launch(*graph);
    for (int replay = 0; replay < kReplays; ++replay) {
      // Behind a graph that still runs: the time to enqueue this one is hidden.
      TANDEM_CUDA_CHECK(cudaEventRecord(events_[0], stream));
      stream_->Launch(*graph);
      TANDEM_CUDA_CHECK(cudaEventRecord(events_[1], stream));
      stream_->Launch(*graph);
      TANDEM_CUDA_CHECK(cudaEventSynchronize(events_[1]));
      float elapsed_ms = 0.0F;
      TANDEM_CUDA_CHECK(cudaEventElapsedTime(&elapsed_ms, events_[0], events_[1]));
      times_us.push_back(double{elapsed_ms} * 1e3);
    }
    stream_->Synchronize();
    std::nth_element(times_us.begin(), times_us.begin() + kReplays / 2, times_us.end());
    return times_us[kReplays / 2];
  }

 private:
  Stream* stream_;
  std::array<cudaEvent_t, 2> events_ = {};
};

}  // namespace tandem
