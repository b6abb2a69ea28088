#include "bench/open_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "bench/seconds.h"

namespace tandem {

using boost::system::error_code;

OpenLoop::OpenLoop(boost::asio::io_context* io, RequestRecorder* recorder, OpenLoopOptions options)
    : io_(io),
      recorder_(recorder),
      options_(std::move(options)),
      num_requests_(static_cast<int64_t>(options_.send_times_s.size())),
      work_guard_(io->get_executor()),
      timer_(*io),
      progress_timer_(*io) {
  sent_.reserve(options_.send_times_s.size());
}

void OpenLoop::CallAt(double time_s, std::function<void()> task) {
  const auto later = std::upper_bound(tasks_.begin(), tasks_.end(), time_s,
                                      [](double time, const Task& other) { return time < other.time_s; });
  tasks_.insert(later, {.time_s = time_s, .call = std::move(task)});
}

void OpenLoop::Run(RequestTarget* target, std::chrono::milliseconds interval,
                   const std::function<void(const RequestRecorder::Progress&)>& on_progress) {
  target_ = target;
  progress_interval_ = interval;
  on_progress_ = on_progress;
  start_ = Clock::now();
  ShowProgress();
  Advance();
  io_->run();
}

Clock::time_point OpenLoop::TimeOf(double seconds) const {
  return start_ + FromSeconds(seconds);
}

bool OpenLoop::HasRoom() const {
  return options_.max_concurrency == 0 || num_under_way_ < options_.max_concurrency;
}

// Everything that is due now; then waits for what is due next.
void OpenLoop::Advance() {
  const Clock::time_point now = Clock::now();
  CallDueTasks(now);
  SendDue(now);
  Expire(now);
  WaitForNext();
  FinishIfDone();
}

void OpenLoop::CallDueTasks(Clock::time_point now) {
  while (next_task_ < tasks_.size() && TimeOf(tasks_[next_task_].time_s) <= now) tasks_[next_task_++].call();
}

void OpenLoop::SendDue(Clock::time_point now) {
  if (options_.duration_s > 0 && now >= TimeOf(options_.duration_s)) sending_ = false;
  while (sending_ && next_ < num_requests_ && HasRoom() &&
         TimeOf(options_.send_times_s[static_cast<size_t>(next_)]) <= now) {
    SendNext(Clock::now());
  }
  if (next_ == num_requests_) sending_ = false;
}

void OpenLoop::SendNext(Clock::time_point now) {
  const int64_t index = next_++;
  const Clock::time_point due = TimeOf(options_.send_times_s[static_cast<size_t>(index)]);
  const Clock::time_point start = options_.max_concurrency > 0 ? now : due;
  sent_.push_back({.start = start});
  peak_concurrency_ = std::max(peak_concurrency_, ++num_under_way_);
  recorder_->Start(index, start, now - due);
  target_->Send(index);
}

void OpenLoop::Expire(Clock::time_point now) {
  if (options_.deadline_s <= 0) return;
  for (; oldest_ < next_; ++oldest_) {
    Sent& request = sent_[static_cast<size_t>(oldest_)];
    if (request.ended) continue;
    if (request.start + FromSeconds(options_.deadline_s) > now) return;
    request.expired = true;
    target_->Cancel(oldest_);
  }
}

void OpenLoop::WaitForNext() {
  Clock::time_point next = Clock::time_point::max();
  if (next_task_ < tasks_.size()) next = std::min(next, TimeOf(tasks_[next_task_].time_s));
  if (sending_ && options_.duration_s > 0) next = std::min(next, TimeOf(options_.duration_s));
  if (sending_ && HasRoom()) next = std::min(next, TimeOf(options_.send_times_s[static_cast<size_t>(next_)]));
  if (options_.deadline_s > 0 && oldest_ < next_) {
    next = std::min(next, sent_[static_cast<size_t>(oldest_)].start + FromSeconds(options_.deadline_s));
  }
  if (next == Clock::time_point::max()) return;
  timer_.expires_at(next);
  timer_.async_wait([this](const error_code& error) {
    if (!error) Advance();
  });
}

void OpenLoop::OnEnd(int64_t index, RequestEnd end) {
  Sent& request = sent_[static_cast<size_t>(index)];
  TANDEM_CHECK(!request.ended, "request {} ends twice", index);
  request.ended = true;
  const bool had_room = HasRoom();
  --num_under_way_;
  switch (end.kind) {
    case RequestEnd::Kind::kDone:
      recorder_->End(index, "");
      break;
    case RequestEnd::Kind::kRejected:
      recorder_->Reject(index, std::move(end.reason));
      break;
    case RequestEnd::Kind::kFailed:
      recorder_->End(index, std::move(end.reason));
      break;
    case RequestEnd::Kind::kCancelled:
      TANDEM_CHECK(request.expired, "request {} was cancelled before its deadline", index);
      recorder_->End(index, fmt::format("not done {} s after it was {}", options_.deadline_s,
                                        options_.max_concurrency > 0 ? "sent" : "due"));
      break;
  }
  if (!had_room && sending_) return Advance();
  FinishIfDone();
}

void OpenLoop::ShowProgress() {
  on_progress_(recorder_->WaitFor(std::chrono::milliseconds(0)));
  progress_timer_.expires_after(progress_interval_);
  progress_timer_.async_wait([this](const error_code& error) {
    // A wait that had already expired cannot be cancelled any more.
    if (!error && !finished_) ShowProgress();
  });
}

void OpenLoop::FinishIfDone() {
  if (sending_ || num_under_way_ > 0 || next_task_ < tasks_.size() || finished_) return;
  finished_ = true;
  timer_.cancel();
  progress_timer_.cancel();
  work_guard_.reset();
  target_->Close();
}

}  // namespace tandem
