// Requests, and books in which some of them run, for tests.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/request_books.h"
#include "kv/kv_books.h"
#include "plan/iteration_plan.h"
#include "plan/plan_testing.h"
#include "request/request.h"

namespace tandem::testing {

// Its prompt: 100 * id, 100 * id + 1, ...
inline std::unique_ptr<Request> MakeRequest(RequestId id, int64_t prompt_len, int64_t max_tokens = 16) {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt_tokens.resize(static_cast<size_t>(prompt_len));
  std::iota(request->prompt_tokens.begin(), request->prompt_tokens.end(), static_cast<int32_t>(100 * id));
  request->sampling.max_tokens = max_tokens;
  return request;
}

inline IterationPlan MainPlan(std::vector<RowSpan> spans) {
  IterationPlan plan;
  plan.main.spans = std::move(spans);
  return plan;
}

// Blocks of 4 tokens, 3 layers, a context of 64 tokens.
struct BooksInUse {
  // num_blocks: by tier.
  explicit BooksInUse(const std::array<int64_t, kNumTiers>& num_blocks, const ScheduleLimits& limits = {},
                      const BlockHasher* hasher = nullptr)
      : kv(KvBooks::Create(4, num_blocks).value()), books(WithDefaults(limits), 64, kv.get(), hasher) {}

  std::vector<BlockMove> Apply(const IterationPlan& plan) {
    num_swapped_tokens = 0;
    return books.Apply(plan, now, &num_swapped_tokens);
  }
  // Its prompt is computed, in one chunk; no token is drawn.
  Request& AddRunning(std::unique_ptr<Request> added, Tier tier = Tier::kGpu) {
    const RequestId id = added->id;
    books.Add(std::move(added), true);
    Request& request = books.At(id);
    Apply(MainPlan({Chunk(id, 0, request.num_tokens(), true, tier)}));
    books.TakeComputed(&request, request.num_tokens());
    return request;
  }
  // The same, and its first token, 7, is drawn: it decodes.
  Request& AddDecoding(RequestId id, int64_t prompt_len, Tier tier = Tier::kGpu) {
    Request& request = AddRunning(MakeRequest(id, prompt_len), tier);
    books.TakeToken(&request, 7);
    return request;
  }
  bool AllFree() const {
    return kv->free_blocks(Tier::kGpu) == kv->total_blocks(Tier::kGpu) &&
           kv->free_blocks(Tier::kCpu) == kv->total_blocks(Tier::kCpu);
  }

  std::unique_ptr<KvBooks> kv;
  RequestBooks books;
  Clock::time_point now = Clock::time_point(std::chrono::seconds(1));  // of the next Apply
  int64_t num_swapped_tokens = 0;                                      // of the plan applied last

 private:
  static ScheduleLimits WithDefaults(ScheduleLimits limits) {
    if (limits.max_num_seqs == 0) limits.max_num_seqs = 8;
    limits.max_num_batched_tokens = 32;
    limits.num_layers = 3;
    limits.max_rider_rows = 1;
    return limits;
  }
};

}  // namespace tandem::testing
