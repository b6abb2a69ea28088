// Requests and books in few words, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "kv/kv_books.h"
#include "planning/schedule_state.h"
#include "request/request.h"

namespace tandem::testing {

// Tokens 100, 101, ...; says what comes of it to nobody.
inline std::unique_ptr<Request> MakeRequest(RequestId id, int64_t prompt_len, int64_t max_tokens = 16) {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt_tokens.resize(static_cast<size_t>(prompt_len));
  std::iota(request->prompt_tokens.begin(), request->prompt_tokens.end(), 100);
  request->sampling.max_tokens = max_tokens;
  request->callback = [](const RequestOutput&) {};
  return request;
}

inline constexpr int64_t kTestBlock = 4;  // tokens

inline std::unique_ptr<KvBooks> MakeBooks(int64_t gpu_blocks, int64_t cpu_blocks) {
  auto books = KvBooks::Create(kTestBlock, {gpu_blocks, cpu_blocks});
  return std::move(*books);
}

inline ScheduleLimits TestLimits() {
  return {.max_num_seqs = 8,
          .max_num_batched_tokens = 64,
          .num_layers = 4,
          .max_transit_tokens = 64,
          .max_cohort_rows = 16,
          .max_rider_rows = 8};
}

}  // namespace tandem::testing
