// A flag that tests look into.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "device/device.h"

namespace tandem::testing {

// Calls back when it is set, on the thread that sets it; carries nothing.
class CallbackFlag : public Flag {
 public:
  explicit CallbackFlag(std::function<void()> callback) : callback_(std::move(callback)) {}
  void Set(uint32_t) override { callback_(); }
  uint32_t value() const override { return 0; }
  bool Wait(uint32_t) override { return true; }
  void Abort() override {}
  bool aborted() const override { return false; }
  void Reset() override {}

 private:
  std::function<void()> callback_;
};

}  // namespace tandem::testing
