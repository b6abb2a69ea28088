#include "bench/session_loop.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "bench/seconds.h"

namespace tandem {

SessionLoop::SessionLoop(boost::asio::io_context* io, RequestRecorder* recorder,
                         const std::vector<WorkloadRequest>& requests, std::vector<double> start_times_s,
                         SessionHistories* histories, const RequestLoopOptions& options)
    : RequestLoop(io, recorder, std::ssize(requests), options),
      requests_(requests),
      start_times_s_(std::move(start_times_s)),
      histories_(histories),
      end_sessions_(options.end_sessions),
      end_(start_times_s_.size()) {
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].turn->number == 0) first_turns_.push_back(static_cast<int64_t>(i));
  }
  TANDEM_CHECK(first_turns_.size() == start_times_s_.size(), "{} sessions begin at {} times",
               first_turns_.size(), start_times_s_.size());
}

bool SessionLoop::BeginsNext() const {
  if (next_ == end_) return false;
  return later_turns_.empty() || TimeOf(start_times_s_[next_]) <= later_turns_.top().due;
}

std::optional<RequestLoop::DueRequest> SessionLoop::NextDue() const {
  if (BeginsNext()) return DueRequest{.index = first_turns_[next_], .due = TimeOf(start_times_s_[next_])};
  if (later_turns_.empty()) return std::nullopt;
  return later_turns_.top();
}

void SessionLoop::TakeNext() {
  if (BeginsNext()) {
    ++next_;
  } else {
    later_turns_.pop();
  }
}

void SessionLoop::StopBeginning() {
  end_ = next_;
  if (!end_sessions_) return;
  is_over_ = true;
  later_turns_ = {};
}

void SessionLoop::OnEnd(int64_t index, RequestEnd end) {
  if (end.kind == RequestEnd::Kind::kDone) {
    const auto num_ids = std::ssize(end.output_tokens);
    const int64_t num_tokens = requests_[static_cast<size_t>(index)].output_tokens;
    if (!histories_->AddAnswer(index, std::move(end.output_tokens))) {
      end = {.kind = RequestEnd::Kind::kFailed,
             .reason = fmt::format("{} token ids came of {} tokens", num_ids, num_tokens)};
    }
  }
  RequestLoop::OnEnd(index, std::move(end));
}

// The prompt is made while the agent pauses, so that it costs no time when it is due.
void SessionLoop::OnCompleted(int64_t index) {
  if (is_over_ || requests_[static_cast<size_t>(index)].turn->is_last) return;
  const int64_t next = index + 1;
  const double pause_s = requests_[static_cast<size_t>(next)].turn->pause_s;
  later_turns_.push({.index = next, .due = Clock::now() + FromSeconds(pause_s)});
  target()->SetPrompt(next, histories_->Prompt(next));
}

}  // namespace tandem
