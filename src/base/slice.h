#pragma once

#include <cstdint>

namespace tandem {

// [begin, begin + count) of something.
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;

  int64_t end() const { return begin + count; }
  // In units of so many elements each.
  Slice Of(int64_t elements) const { return {begin * elements, count * elements}; }
  bool operator==(const Slice&) const = default;
};

}  // namespace tandem
