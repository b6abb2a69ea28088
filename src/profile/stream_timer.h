// How long work takes on a stream, by the device's clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "device/device.h"

namespace tandem {

// One thread, which is also the one that enqueues on the stream.
class StreamTimer {
 public:
  // Errors: kResourceExhausted.
  static Result<StreamTimer> Create(Device* device, Stream* stream);

  // Microseconds from the stream's reaching what enqueue enqueues to its end. Blocks until then.
  double TimeUs(const std::function<void()>& enqueue);
  // The same, but the stream begins when all is enqueued, so that the time of launches is not part of it.
  // enqueue must not block on the stream and stay below some hundred launches. meanwhile: runs on this thread
  // once the stream has begun.
  double TimeEnqueuedUs(const std::function<void()>& enqueue, const std::function<void()>& meanwhile = {});

  // In steps, for streams that work together: Hold, which may be left out, and what is to come before; Begin,
  // the work, End; Release if there was a Hold; Await, which blocks.
  void Hold();
  void Begin();
  void End();
  void Release() { start_->Set(sequence_); }
  double AwaitUs();

 private:
  StreamTimer() = default;

  Stream* stream_ = nullptr;
  std::unique_ptr<Flag> start_;
  uint32_t sequence_ = 0;
  Buffer times_;         // pinned: begin and end
  double empty_us_ = 0;  // between two stamps in a row
};

}  // namespace tandem
