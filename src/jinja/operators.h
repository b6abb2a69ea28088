// Python's operators on template values. Operands of the wrong type throw TemplateError.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };

Value ApplyBinary(Runtime& runtime, BinaryOp op, const Value& a, const Value& b);
Value Negate(const Value& a);
Value Plus(const Value& a);

bool Equal(Runtime& runtime, const Value& a, const Value& b);
bool Less(Runtime& runtime, const Value& a, const Value& b);
bool LessEqual(Runtime& runtime, const Value& a, const Value& b);
bool Contains(Runtime& runtime, const Value& container, const Value& item);

// Python's int // and % (the result has the sign of the divisor). b is not 0.
int64_t FloorDivide(int64_t a, int64_t b);

// Keeps the order of equal items. less may throw and need not be a consistent order.
template <typename T, typename LessThan>
void StableSort(std::vector<T>& items, LessThan less) {
  std::vector<T> merged;
  for (size_t width = 1; width < items.size(); width *= 2) {
    merged.clear();
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      size_t left = begin;
      const size_t middle = std::min(begin + width, items.size());
      size_t right = middle;
      const size_t end = std::min(begin + 2 * width, items.size());
      while (left < middle && right < end) {
        merged.push_back(std::move(less(items[right], items[left]) ? items[right++] : items[left++]));
      }
      while (left < middle) merged.push_back(std::move(items[left++]));
      while (right < end) merged.push_back(std::move(items[right++]));
    }
    items.swap(merged);
  }
}

}  // namespace tandem::jinja
