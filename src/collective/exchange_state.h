// Whether shards still exchange, and if not why.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

namespace tandem {

// Any thread.
class ExchangeState {
 public:
  // The first reason stays.
  void Abort(std::string reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  std::optional<std::string> reason() const;
  // kUnavailable with the reason, as CollectiveGroup::failure has it.
  std::optional<Error> failure() const;

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> reason_;
  std::atomic<bool> aborted_{false};
};

}  // namespace tandem
