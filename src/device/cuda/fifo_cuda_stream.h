// The streams that a cuda device creates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "device/cuda/cuda_gpu.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/driver_api.h"

namespace tandem {

class FifoCudaStream : public CudaStream {
 public:
  // Takes the stream over. api and target outlive it. gpu: where the stream is, or kAnyGpu.
  FifoCudaStream(cudaStream_t stream, const DriverApi& api, const CudaTarget& target, int gpu,
                 std::string_view name);
  ~FifoCudaStream() override;
  FifoCudaStream(const FifoCudaStream&) = delete;
  FifoCudaStream& operator=(const FifoCudaStream&) = delete;

  // With the stream's GPU as that of the calling thread.
  cudaStream_t handle() const override {
    if (gpu_ != kAnyGpu) UseGpu(gpu_);
    return stream_;
  }
  const CudaTarget& target() const override { return target_; }
  void AfterSynchronize(std::function<void()> work) override;
  bool TakeJoin() override;

  std::string_view name() const override { return name_; }
  void Copy(void* dst, const void* src, size_t size_bytes) override;
  void CopyRows(void* dst, size_t dst_stride_bytes, const void* src, size_t src_stride_bytes,
                size_t row_bytes, size_t num_rows) override;
  void Record(Event& event) override;
  void Wait(Event& event) override;
  void SetFlag(Flag& flag, uint32_t value) override;
  void WaitFlag(Flag& flag, uint32_t value) override;
  void Synchronize() override;
  void SynchronizeTo(Event& event) override;
  void BeginCapture() override;
  std::unique_ptr<Graph> EndCapture() override;
  void Launch(Graph& graph) override;
  void Stamp(uint64_t* time_ns) override;
  void Delay(std::chrono::nanoseconds time) override;
  void BeginRange(const char* name) override;
  void EndRange() override;

 private:
  cudaStream_t stream_;
  const DriverApi& api_;
  const CudaTarget& target_;
  const int gpu_;
  const std::string name_;
  // Runs the oldest of after_synchronize_, until so many have run in all.
  void RunWorks(uint64_t num_works);
  uint64_t num_works() const { return num_works_run_ + after_synchronize_.size(); }

  std::deque<std::function<void()>> after_synchronize_;
  uint64_t num_works_run_ = 0;
  bool joined_ = false;  // since the last kernel, in a capture
};

}  // namespace tandem
