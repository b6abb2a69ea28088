#include "device/cuda/cuda_sync.h"

#include <thread>
#include <utility>

#include "base/spin.h"
#include "device/cuda/cuda_error.h"

namespace tandem {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLineBytes = 64;

}  // namespace

CudaEvent::CudaEvent() {
  TANDEM_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(event_);
}

void CudaEvent::Synchronize() {
  TANDEM_CUDA_CHECK(cudaEventSynchronize(event_));
}

bool CudaEvent::SynchronizeFor(std::chrono::microseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  // The runtime has no such wait. Unlike its own it leaves the core, which a worker of CPU attention may
  // need.
  constexpr std::chrono::microseconds kNap{20};
  while (!Complete()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

bool CudaEvent::Complete() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  TANDEM_CUDA_CHECK(status);
  return true;
}

FlagWords::~FlagWords() {
  for (void* page : pages_) cudaFreeHost(page);
}

uint32_t* FlagWords::Take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    void* page = nullptr;
    TANDEM_CUDA_CHECK(cudaHostAlloc(&page, kPageBytes, cudaHostAllocPortable | cudaHostAllocMapped));
    pages_.push_back(page);
    for (size_t offset = 0; offset < kPageBytes; offset += kLineBytes) {
      free_.push_back(reinterpret_cast<uint32_t*>(static_cast<std::byte*>(page) + offset));
    }
  }
  uint32_t* word = free_.back();
  free_.pop_back();
  return word;
}

void FlagWords::GiveBack(uint32_t* word) {
  const std::lock_guard lock(mutex_);
  free_.push_back(word);
}

CudaFlag::CudaFlag(std::shared_ptr<FlagWords> words) : words_(std::move(words)), word_(words_->Take()) {
  Reset();
}

CudaFlag::~CudaFlag() {
  words_->GiveBack(word_);
}

void CudaFlag::Set(uint32_t value) {
  // Values only grow; an abort, which lies far ahead, stays.
  std::atomic_ref word(*word_);
  uint32_t current = word.load(std::memory_order_relaxed);
  while (current < value && !word.compare_exchange_weak(current, value, std::memory_order_release)) {
  }
}

uint32_t CudaFlag::value() const {
  return std::atomic_ref(*word_).load(std::memory_order_acquire);
}

bool CudaFlag::Wait(uint32_t value) {
  constexpr int kSpins = 4096;
  // Also satisfied by an abort.
  for (int spins = 0; this->value() < value; ++spins) {
    if (spins < kSpins) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
  }
  return !aborted();
}

void CudaFlag::Abort() {
  std::atomic_ref word(*word_);
  uint32_t current = word.load(std::memory_order_relaxed);
  while (current < kAbortedWord &&
         !word.compare_exchange_weak(current, current + kAbortedWord, std::memory_order_release)) {
  }
}

bool CudaFlag::aborted() const {
  return value() >= kAbortedWord;
}

void CudaFlag::Reset() {
  std::atomic_ref(*word_).store(0, std::memory_order_release);
}

}  // namespace tandem
