#include "bench/open_loop.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <thread>
#include <vector>

namespace tandem {
namespace {

using std::chrono::milliseconds;

// Ends every request while the loop's timers have expired but have not been told so.
class LateTarget final : public RequestTarget {
 public:
  LateTarget(boost::asio::io_context* io, OpenLoop* loop, milliseconds delay)
      : io_(io), loop_(loop), delay_(delay) {}

  void SetPrompt(int64_t /*index*/, std::vector<int32_t> /*tokens*/) override {}
  void Send(int64_t index) override {
    boost::asio::post(*io_, [this, index] {
      // The timers expire here; they are seen between this handler and the next, which then runs first.
      std::this_thread::sleep_for(delay_);
      boost::asio::post(*io_, [this, index] { loop_->OnEnd(index, {RequestEnd::Kind::kDone, ""}); });
    });
  }
  void Cancel(int64_t index) override {
    boost::asio::post(*io_, [this, index] { loop_->OnEnd(index, {RequestEnd::Kind::kCancelled, ""}); });
  }
  void Close() override { closed_ = true; }

  bool closed() const { return closed_; }

 private:
  boost::asio::io_context* const io_;
  OpenLoop* const loop_;
  const milliseconds delay_;
  bool closed_ = false;
};

TEST(OpenLoop, EndsThoughTheProgressTimerExpiredAtThatMoment) {
  constexpr int kNumRequests = 3;
  boost::asio::io_context io(1);
  RequestRecorder recorder(
      std::vector<WorkloadRequest>(kNumRequests, {.prompt_tokens = 1, .output_tokens = 1}));
  OpenLoop loop(&io, &recorder, std::vector<double>(kNumRequests, 0.0), {});
  LateTarget target(&io, &loop, milliseconds(20));
  int shown_after_end = 0;
  loop.Run(&target, milliseconds(5), [&](const RequestRecorder::Progress& progress) {
    // Else a loop that never ends would hang the test.
    if (progress.ended == kNumRequests && ++shown_after_end > 10) io.stop();
  });
  EXPECT_TRUE(target.closed());
  EXPECT_FALSE(io.poll_one()) << "something was left to do";
  EXPECT_LE(shown_after_end, 1);
  for (int64_t i = 0; i < kNumRequests; ++i) EXPECT_TRUE(loop.WasSent(i));
}

}  // namespace
}  // namespace tandem
