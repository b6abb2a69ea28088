// Events and flags of the cuda backend.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace tandem {

class CudaEvent : public Event {
 public:
  CudaEvent();
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void Synchronize() override;
  bool SynchronizeFor(std::chrono::microseconds timeout) override;
  bool Complete() const override;
  cudaEvent_t handle() const { return event_; }

  // For the thread that enqueues: how many works of CudaStream::AfterSynchronize the stream had got in all
  // when the event was recorded.
  void set_num_works_before(uint64_t num_works) { num_works_before_ = num_works; }
  uint64_t num_works_before() const { return num_works_before_; }

 private:
  cudaEvent_t event_ = nullptr;
  uint64_t num_works_before_ = 0;
};

// Pinned memory for flags, a cache line each. Any thread.
class FlagWords {
 public:
  ~FlagWords();
  uint32_t* Take();
  void GiveBack(uint32_t* word);

 private:
  std::mutex mutex_;
  std::vector<void*> pages_;
  std::vector<uint32_t*> free_;
};

// From here on a flag's word is that of an aborted one. Values in use are smaller.
inline constexpr uint32_t kAbortedWord = uint32_t{1} << 30;

// The word lies in pinned memory: streams read and write it by stream memory operations, host threads by
// atomics. Streams compare cyclically, so an abort moves the word far ahead of every value in use. Nothing
// but the word tells of an abort: whoever has seen it may reset the flag.
class CudaFlag : public Flag {
 public:
  explicit CudaFlag(std::shared_ptr<FlagWords> words);
  ~CudaFlag() override;
  CudaFlag(const CudaFlag&) = delete;
  CudaFlag& operator=(const CudaFlag&) = delete;

  void Set(uint32_t value) override;
  uint32_t value() const override;
  bool Wait(uint32_t value) override;
  void Abort() override;
  bool aborted() const override;
  void Reset() override;
  uint32_t* word() const { return word_; }

 private:
  std::shared_ptr<FlagWords> words_;
  uint32_t* word_;
};

}  // namespace tandem
