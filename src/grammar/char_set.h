// Sets of Unicode characters.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// Of Unicode scalar values: surrogates are in no set. Immutable but for Add.
class CharSet {
 public:
  struct Range {
    uint32_t first;
    uint32_t last;  // in the range
    bool operator==(const Range&) const = default;
  };

  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges) {
    for (const Range& range : ranges) Add(range.first, range.last);
  }
  static CharSet All() { return {{0, 0x10FFFF}}; }

  void Add(uint32_t first, uint32_t last);
  void Add(const CharSet& other);
  CharSet Complement() const;
  CharSet Minus(const CharSet& other) const;

  bool Has(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  // Sorted, disjoint, not adjacent.
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

}  // namespace tandem
