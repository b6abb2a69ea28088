// What becomes of an iteration's results: tokens for clients, ends, and their delivery.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine_counters.h"
#include "engine/request_books.h"
#include "execute/iteration_result.h"
#include "request/request.h"
#include "request/request_output.h"

namespace tandem {

// Engine thread only.
class Results {
 public:
  // All outlive it. forget: takes a request that has ended out of the books; its blocks are free then.
  Results(RequestBooks* books, const KvBooks* kv, EngineCounters* counters,
          std::function<void(RequestId)> forget)
      : books_(books), kv_(kv), counters_(counters), forget_(std::move(forget)) {}

  // The books of a result that has not failed; its output waits for Deliver. A request has one result between
  // two deliveries, and is not ended from outside (End) meanwhile.
  void Take(SequenceResult result);
  // Calls the callbacks, in the order of the results. They may submit and cancel, but that only reaches the
  // inbox.
  void Deliver();
  // Ends a request at once, behind what was delivered. error: why, with kError.
  void End(RequestId id, FinishReason reason, std::optional<Error> error);

 private:
  struct Output {
    OutputCallback last_callback;  // of a request that has ended; empty: the request's own
    RequestOutput output;
  };
  // What an iteration has computed of a request, and what it need not have.
  void CountComputed(const Request& request, int64_t num_computed);
  // Of a request that wants an embedding; ends it with its prompt.
  void TakePooled(Request* request, const SequenceResult& result, RequestOutput* output);
  void TakeToken(Request* request, SampledToken token, RequestOutput* output);
  // Why a request ends when the last of its generated tokens is `token`, or kNone.
  FinishReason ReasonToFinish(const Request& request, int32_t token) const;

  RequestBooks* books_;
  const KvBooks* kv_;
  EngineCounters* counters_;
  std::function<void(RequestId)> forget_;
  std::vector<Output> outputs_;
};

}  // namespace tandem
