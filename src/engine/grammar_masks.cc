#include "engine/grammar_masks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/token_mask.h"
#include "base/topology.h"

namespace tandem {
namespace {

constexpr size_t kMasksABuffer = 16;
constexpr size_t kGapBytes = 64;
constexpr int kCoresAThread = 4;
constexpr int kMaxThreads = 4;

}  // namespace

void GrammarProgress::Advance(std::span<const int32_t> tokens, std::span<uint32_t> mask) {
  for (const int32_t token : tokens) {
    ++num_accepted_;
    if (!failed() && !state_->Accept(token)) failed_.store(true, std::memory_order_release);
  }
  if (failed()) {
    std::fill(mask.begin(), mask.end(), ~uint32_t{0});
  } else {
    state_->FillMask(mask);
  }
}

GrammarMasks::GrammarMasks(Device* device, int64_t vocab_size)
    : device_(device), num_words_(NumMaskWords(vocab_size)) {}

GrammarMasks::~GrammarMasks() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::span<uint32_t> GrammarMasks::MaskAt(size_t index) {
  const size_t buffer = index / kMasksABuffer;
  const size_t mask_bytes = num_words_ * sizeof(uint32_t);
  if (buffer == memory_.size()) {
    // A gap at the end: masks that lie one after the other may be copied as one, which works within a buffer
    // only.
    auto memory =
        device_->Allocate(kMasksABuffer * mask_bytes + kGapBytes, MemoryKind::kPinned, "masks of grammars");
    TANDEM_CHECK(memory.ok(), "{}", memory.error().message);
    memory_.push_back(std::move(memory).value());
  }
  return {memory_[buffer].as<uint32_t>() + (index % kMasksABuffer) * num_words_, num_words_};
}

void GrammarMasks::Begin() {
  launched_ = false;
  if (ready_ == nullptr) {
    ready_ = device_->CreateFlag();
    const int num_threads = std::clamp(MachineTopology().num_physical_cores / kCoresAThread, 1, kMaxThreads);
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { ThreadMain(); });
  }
  // Where an iteration could not start, nobody has waited for its masks.
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return num_ended_ == num_launched_; });
  jobs_.clear();
  num_begun_ = num_launched_ = num_ended_ = 0;
  ready_->Reset();
}

std::span<const uint32_t> GrammarMasks::Add(std::shared_ptr<GrammarProgress> progress,
                                            std::span<const int32_t> output_tokens) {
  if (launched_ || ready_ == nullptr) Begin();
  // Nobody looks at the jobs before Launch.
  const std::span<uint32_t> mask = MaskAt(jobs_.size());
  const auto fresh = output_tokens.subspan(static_cast<size_t>(progress->num_accepted()));
  jobs_.push_back({std::move(progress), {fresh.begin(), fresh.end()}, mask});
  return mask;
}

Flag* GrammarMasks::Launch() {
  if (launched_ || jobs_.empty()) return nullptr;
  launched_ = true;
  {
    const std::lock_guard lock(mutex_);
    num_launched_ = jobs_.size();
  }
  has_work_.notify_all();
  return ready_.get();
}

void GrammarMasks::ThreadMain() {
  SetThreadName("grammar masks");
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return stops_ || num_begun_ < num_launched_; });
    if (num_begun_ == num_launched_) return;
    Job& job = jobs_[num_begun_++];
    lock.unlock();
    job.progress->Advance(job.tokens, job.mask);
    lock.lock();
    if (++num_ended_ < num_launched_) continue;
    ready_->Set(1);
    idle_.notify_all();
  }
}

}  // namespace tandem
