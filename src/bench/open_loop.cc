#include "bench/open_loop.h"

#include <utility>

namespace tandem {

OpenLoop::OpenLoop(boost::asio::io_context* io, RequestRecorder* recorder, std::vector<double> send_times_s,
                   const RequestLoopOptions& options)
    : RequestLoop(io, recorder, std::ssize(send_times_s), options),
      send_times_s_(std::move(send_times_s)),
      end_(send_times_s_.size()) {}

std::optional<RequestLoop::DueRequest> OpenLoop::NextDue() const {
  if (next_ == end_) return std::nullopt;
  return DueRequest{.index = static_cast<int64_t>(next_), .due = TimeOf(send_times_s_[next_])};
}

}  // namespace tandem
