#include "collective/exchange_state.h"

#include <utility>

namespace tandem {

void ExchangeState::Abort(std::string reason) {
  const std::lock_guard lock(mutex_);
  if (!reason_) reason_ = std::move(reason);
  aborted_.store(true, std::memory_order_release);
}

std::optional<std::string> ExchangeState::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

std::optional<Error> ExchangeState::failure() const {
  const std::optional<std::string> why = reason();
  if (!why) return std::nullopt;
  return MakeError(ErrorCode::kUnavailable, "{}", *why);
}

}  // namespace tandem
