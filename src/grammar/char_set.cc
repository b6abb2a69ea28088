#include "grammar/char_set.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF, kLastChar = 0x10FFFF;

}  // namespace

void CharSet::Add(uint32_t first, uint32_t last) {
  if (first < kFirstSurrogate && last > kLastSurrogate) {
    Add(first, kFirstSurrogate - 1);
    Add(kLastSurrogate + 1, last);
    return;
  }
  if (first >= kFirstSurrogate && first <= kLastSurrogate) first = kLastSurrogate + 1;
  if (last >= kFirstSurrogate && last <= kLastSurrogate) last = kFirstSurrogate - 1;
  if (first > last) return;
  const auto begin = std::ranges::find_if(ranges_, [&](const Range& r) { return r.last + 1 >= first; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

void CharSet::Add(const CharSet& other) {
  for (const Range& range : other.ranges_) Add(range.first, range.last);
}

CharSet CharSet::Complement() const {
  CharSet complement;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) complement.Add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastChar) complement.Add(next, kLastChar);
  return complement;
}

CharSet CharSet::Minus(const CharSet& other) const {
  CharSet outside = Complement();
  outside.Add(other);
  return outside.Complement();
}

bool CharSet::Has(uint32_t c) const {
  return std::ranges::any_of(ranges_, [c](const Range& r) { return r.first <= c && c <= r.last; });
}

}  // namespace tandem
