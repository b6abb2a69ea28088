#include "bench/request_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "bench/seconds.h"

namespace tandem {

using boost::system::error_code;

RequestLoop::RequestLoop(boost::asio::io_context* io, RequestRecorder* recorder, int64_t num_requests,
                         RequestLoopOptions options)
    : io_(io),
      recorder_(recorder),
      options_(options),
      work_guard_(io->get_executor()),
      timer_(*io),
      progress_timer_(*io),
      requests_(static_cast<size_t>(num_requests)) {
  sent_.reserve(requests_.size());
}

void RequestLoop::CallAt(double time_s, std::function<void()> task) {
  const auto later = std::upper_bound(tasks_.begin(), tasks_.end(), time_s,
                                      [](double time, const Task& other) { return time < other.time_s; });
  tasks_.insert(later, {.time_s = time_s, .call = std::move(task)});
}

void RequestLoop::Run(RequestTarget* target, std::chrono::milliseconds interval,
                      const std::function<void(const RequestRecorder::Progress&)>& on_progress) {
  target_ = target;
  progress_interval_ = interval;
  on_progress_ = on_progress;
  start_ = Clock::now();
  ShowProgress();
  Advance();
  io_->run();
}

Clock::time_point RequestLoop::TimeOf(double seconds) const {
  return start_ + FromSeconds(seconds);
}

bool RequestLoop::HasRoom() const {
  return options_.max_concurrency == 0 || num_under_way_ < options_.max_concurrency;
}

// Everything that is due now; then waits for what is due next.
void RequestLoop::Advance() {
  const Clock::time_point now = Clock::now();
  CallDueTasks(now);
  SendDue(now);
  Expire(now);
  WaitForNext();
  FinishIfDone();
}

void RequestLoop::CallDueTasks(Clock::time_point now) {
  while (next_task_ < tasks_.size() && TimeOf(tasks_[next_task_].time_s) <= now) tasks_[next_task_++].call();
}

void RequestLoop::SendDue(Clock::time_point now) {
  if (beginning_ && options_.duration_s > 0 && now >= TimeOf(options_.duration_s)) {
    beginning_ = false;
    StopBeginning();
  }
  while (HasRoom()) {
    const std::optional<DueRequest> next = NextDue();
    if (!next || next->due > now) return;
    TakeNext();
    SendNext(*next, Clock::now());
  }
}

void RequestLoop::SendNext(const DueRequest& request, Clock::time_point now) {
  const Clock::time_point start = options_.max_concurrency > 0 ? now : request.due;
  State& state = requests_[static_cast<size_t>(request.index)];
  TANDEM_CHECK(!state.sent, "request {} is sent twice", request.index);
  state.sent = true;
  state.start = start;
  sent_.push_back(request.index);
  peak_concurrency_ = std::max(peak_concurrency_, ++num_under_way_);
  recorder_->Start(request.index, {.start = start, .due = request.due, .sent = now});
  target_->Send(request.index);
}

Clock::time_point RequestLoop::DeadlineOf(const State& request) const {
  Clock::time_point begin = request.start;
  if (options_.end_sessions) begin = std::max(begin, TimeOf(options_.duration_s));
  return begin + FromSeconds(options_.deadline_s);
}

void RequestLoop::Expire(Clock::time_point now) {
  if (options_.deadline_s <= 0) return;
  for (; oldest_ < sent_.size(); ++oldest_) {
    const int64_t index = sent_[oldest_];
    State& request = requests_[static_cast<size_t>(index)];
    if (request.ended) continue;
    if (DeadlineOf(request) > now) return;
    request.expired = true;
    target_->Cancel(index);
  }
}

void RequestLoop::WaitForNext() {
  Clock::time_point next = Clock::time_point::max();
  if (next_task_ < tasks_.size()) next = std::min(next, TimeOf(tasks_[next_task_].time_s));
  const std::optional<DueRequest> request = NextDue();
  // What waits for room may have to be given up meanwhile.
  if (request && beginning_ && options_.duration_s > 0) next = std::min(next, TimeOf(options_.duration_s));
  if (request && HasRoom()) next = std::min(next, request->due);
  if (options_.deadline_s > 0 && oldest_ < sent_.size()) {
    next = std::min(next, DeadlineOf(requests_[static_cast<size_t>(sent_[oldest_])]));
  }
  if (next == Clock::time_point::max()) return;
  timer_.expires_at(next);
  timer_.async_wait([this](const error_code& error) {
    if (!error && !finished_) Advance();
  });
}

void RequestLoop::OnEnd(int64_t index, RequestEnd end) {
  State& request = requests_[static_cast<size_t>(index)];
  TANDEM_CHECK(!request.ended, "request {} ends twice", index);
  request.ended = true;
  --num_under_way_;
  if (end.cached_tokens) recorder_->SetCachedTokens(index, *end.cached_tokens);
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
    case RequestEnd::Kind::kCancelled: {
      TANDEM_CHECK(request.expired, "request {} was cancelled before its deadline", index);
      const char* since = options_.max_concurrency > 0 ? "it was sent" : "it was due";
      if (DeadlineOf(request) > request.start + FromSeconds(options_.deadline_s))
        since = "the sessions ended";
      recorder_->End(index, fmt::format("not done {} s after {}", options_.deadline_s, since));
      break;
    }
  }
  if (recorder_->HasCompleted(index)) OnCompleted(index);
  Advance();
}

void RequestLoop::ShowProgress() {
  on_progress_(recorder_->WaitFor(std::chrono::milliseconds(0)));
  progress_timer_.expires_after(progress_interval_);
  progress_timer_.async_wait([this](const error_code& error) {
    // A wait that had already expired cannot be cancelled any more.
    if (!error && !finished_) ShowProgress();
  });
}

void RequestLoop::FinishIfDone() {
  if (finished_ || num_under_way_ > 0 || next_task_ < tasks_.size() || NextDue()) return;
  finished_ = true;
  timer_.cancel();
  progress_timer_.cancel();
  work_guard_.reset();
  target_->Close();
}

}  // namespace tandem
