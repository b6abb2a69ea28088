#include "profile/stream_timer.h"

#include <algorithm>
#include <array>

namespace tandem {

Result<StreamTimer> StreamTimer::Create(Device* device, Stream* stream) {
  StreamTimer timer;
  timer.stream_ = stream;
  timer.start_ = device->CreateFlag();
  TANDEM_ASSIGN_OR_RETURN(timer.times_,
                          device->Allocate(2 * sizeof(uint64_t), MemoryKind::kPinned, "time stamps"));
  std::array<double, 9> empty_us{};
  for (double& us : empty_us) us = timer.TimeEnqueuedUs([] {});
  std::sort(empty_us.begin(), empty_us.end());
  timer.empty_us_ = empty_us[empty_us.size() / 2];
  return timer;
}

void StreamTimer::Hold() {
  stream_->WaitFlag(*start_, ++sequence_);
}

void StreamTimer::Begin() {
  stream_->Stamp(times_.as<uint64_t>());
}

void StreamTimer::End() {
  stream_->Stamp(times_.as<uint64_t>() + 1);
}

double StreamTimer::AwaitUs() {
  stream_->Synchronize();
  const auto* times = static_cast<const volatile uint64_t*>(times_.data());
  const auto ns = static_cast<double>(static_cast<int64_t>(times[1] - times[0]));
  return std::max(0.0, ns / 1000 - empty_us_);
}

double StreamTimer::TimeUs(const std::function<void()>& enqueue) {
  Begin();
  enqueue();
  End();
  return AwaitUs();
}

double StreamTimer::TimeEnqueuedUs(const std::function<void()>& enqueue,
                                   const std::function<void()>& meanwhile) {
  Hold();
  Begin();
  enqueue();
  End();
  Release();
  if (meanwhile) meanwhile();
  return AwaitUs();
}

}  // namespace tandem
