// Submits to a real engine and waits: what the engine tests share.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace tandem {

inline CacheSize SizeInTokens(int64_t amount) {
  return {.unit = CacheSize::Unit::kTokens, .amount = amount};
}

// What has arrived for one request so far.
class Collected {
 public:
  OutputCallback Callback(const std::shared_ptr<Collected>& self) {
    return [self](RequestOutput output) { self->Take(std::move(output)); };
  }
  // on_last: called on the engine thread with the last output.
  OutputCallback Callback(const std::shared_ptr<Collected>& self, std::function<void()> on_last) {
    return [self, on_last = std::move(on_last)](RequestOutput output) {
      if (output.finish_reason != FinishReason::kNone) on_last();
      self->Take(std::move(output));
    };
  }
  void Take(RequestOutput output) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(finish_reason_, FinishReason::kNone) << "a call after the last one";
    for (SampledToken& token : output.tokens) tokens_.push_back(std::move(token));
    num_cached_tokens_ = output.num_cached_tokens;
    finish_reason_ = output.finish_reason;
    stop_token_id_ = output.stop_token_id;
    if (output.error) error_message_ = output.error->message;
    changed_.notify_all();
  }
  void WaitForTokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_.size() >= count || finish_reason_ != FinishReason::kNone; });
  }
  FinishReason Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finish_reason_ != FinishReason::kNone; });
    return finish_reason_;
  }
  std::vector<int32_t> TokenIds() const {
    const std::lock_guard lock(mutex_);
    std::vector<int32_t> ids;
    for (const SampledToken& token : tokens_) ids.push_back(token.token);
    return ids;
  }
  const std::vector<SampledToken>& tokens() const { return tokens_; }
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  int32_t stop_token_id() const { return stop_token_id_; }
  // Of a request that has ended as kError.
  const std::string& error_message() const { return error_message_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SampledToken> tokens_;
  FinishReason finish_reason_ = FinishReason::kNone;
  int64_t num_cached_tokens_ = 0;
  int32_t stop_token_id_ = -1;
  std::string error_message_;
};

struct Submitted {
  RequestId id = 0;
  std::shared_ptr<Collected> output;
};

// An Engine or an EngineLoop.
template <typename EngineOrLoop>
Submitted SubmitTo(EngineOrLoop& engine, RequestSpec spec) {
  auto collected = std::make_shared<Collected>();
  const auto id = engine.Submit(std::move(spec), collected->Callback(collected));
  EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().message);
  // Nothing comes of what was refused: whoever waits is told so.
  if (!id.ok()) collected->Take({.finish_reason = FinishReason::kError, .error = id.error()});
  return {id.ok() ? *id : 0, collected};
}

}  // namespace tandem
