// What works a benchmark's requests off: an engine in this process, or a server.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

// How a request ended.
struct RequestEnd {
  enum class Kind {
    kDone,
    kRejected,  // not accepted: the queue is full, the server is overloaded
    kFailed,
    kCancelled,  // by Cancel
  };
  Kind kind = Kind::kDone;
  std::string reason;                       // one clause; empty if it is done or cancelled
  std::vector<int32_t> output_tokens = {};  // their ids, where they are known
  // Of the prompt, that a prefix cache had; absent if nobody says.
  std::optional<int64_t> cached_tokens = std::nullopt;
};

// Called once for each request that was sent, on the thread of the benchmark's loop, not before Send has
// returned.
using RequestEndCallback = std::function<void(int64_t index, RequestEnd end)>;

// All calls from the thread of the benchmark's loop. Requests go by their index in the workload. Tokens are
// told to a RequestRecorder before the end is told.
class RequestTarget {
 public:
  virtual ~RequestTarget() = default;

  // What a request asks. Before it is sent.
  virtual void SetPrompt(int64_t index, std::vector<int32_t> tokens) = 0;
  // Sends a request; does not block.
  virtual void Send(int64_t index) = 0;
  // Ends a request that was sent and has not ended; the callback still follows.
  virtual void Cancel(int64_t index) = 0;
  // All requests have ended: gives up whatever would keep the loop running.
  virtual void Close() = 0;
};

}  // namespace tandem
