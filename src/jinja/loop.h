// The variable "loop" of a for loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace tandem::jinja {

struct LoopData : ObjectData {
  LoopData(std::vector<Value> loop_items, int64_t loop_depth);

  std::string Describe() const override;
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;
  std::optional<Value> Call(Runtime& runtime, const Arguments& arguments) override;
  std::optional<int64_t> Length() const override { return length; }
  // At the end of the loop: the loop variable may live on, its items need not.
  void Release();

  std::vector<Value> items;
  int64_t length;
  int64_t index = 0;  // 0-based
  int64_t depth0;     // loops around this one
  std::optional<Value> last_changed;
  NativeFunction recurse;  // of a recursive loop: renders the loop over its argument
};

}  // namespace tandem::jinja
