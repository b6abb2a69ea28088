// Which tokens may follow in answers that have a grammar: a mask for each row that draws, made by threads of
// their own while the device passes the layers.
//
//   engine thread   [start i ... ][outputs i-1][plan i+1][ waits           ]
//   mask threads    [masks of i  ]
//   device          [layers of iteration i              ][ masks there? ][ sampling ]
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "device/device.h"
#include "request/grammar.h"

namespace tandem {

// An answer's state in its grammar, from submission to its end. Shared by the engine thread and, between
// Launch and the flag, by a mask thread.
class GrammarProgress {
 public:
  explicit GrammarProgress(std::shared_ptr<const Grammar> grammar)
      : grammar_(std::move(grammar)), state_(grammar_->Begin()) {}

  // A token was drawn that the grammar does not have, against its own mask. The answer cannot go on.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  int64_t num_accepted() const { return num_accepted_; }

  // Takes the tokens that were drawn since the last call, and fills the mask of the next.
  void Advance(std::span<const int32_t> tokens, std::span<uint32_t> mask);

 private:
  std::shared_ptr<const Grammar> grammar_;  // outlives its state
  std::unique_ptr<GrammarState> state_;
  int64_t num_accepted_ = 0;
  std::atomic<bool> failed_{false};
};

// Engine thread only. Takes memory and threads with the first mask.
class GrammarMasks {
 public:
  // device: outlives it.
  GrammarMasks(Device* device, int64_t vocab_size);
  ~GrammarMasks();
  GrammarMasks(const GrammarMasks&) = delete;
  GrammarMasks& operator=(const GrammarMasks&) = delete;

  // An iteration's masks, while none runs: Add for each row, then Launch.

  // output_tokens: of the answer so far. Returns where the mask of the next will be, in pinned memory; valid
  // until the next iteration's first Add.
  std::span<const uint32_t> Add(std::shared_ptr<GrammarProgress> progress,
                                std::span<const int32_t> output_tokens);
  // Null if there are none; else the flag that becomes 1 when all masks are there. It always does, whatever
  // the engine thread does meanwhile.
  Flag* Launch();

 private:
  struct Job {
    std::shared_ptr<GrammarProgress> progress;
    std::vector<int32_t> tokens;
    std::span<uint32_t> mask;
  };

  void Begin();
  std::span<uint32_t> MaskAt(size_t index);
  void ThreadMain();

  Device* device_;
  const size_t num_words_;
  std::unique_ptr<Flag> ready_;
  std::vector<Buffer> memory_;  // kMasksABuffer masks each
  bool launched_ = false;

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable idle_;
  std::vector<Job> jobs_;
  size_t num_begun_ = 0;  // of jobs_; below num_launched_ there is work
  size_t num_launched_ = 0;
  size_t num_ended_ = 0;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
