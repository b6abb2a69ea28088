// Sends requests at their times, whether or not those before are done.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/request_loop.h"

namespace tandem {

class OpenLoop final : public RequestLoop {
 public:
  // send_times_s: from the start; ascending. The recorder has as many requests as there are times.
  OpenLoop(boost::asio::io_context* io, RequestRecorder* recorder, std::vector<double> send_times_s,
           const RequestLoopOptions& options);

 protected:
  std::optional<DueRequest> NextDue() const override;
  void TakeNext() override { ++next_; }
  void StopBeginning() override { end_ = next_; }

 private:
  const std::vector<double> send_times_s_;
  size_t next_ = 0;  // to be sent
  size_t end_ = 0;   // no request from here on is sent
};

}  // namespace tandem
