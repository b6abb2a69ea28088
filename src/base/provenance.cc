#include "base/provenance.h"

#include <algorithm>

namespace tandem {

size_t Provenance::ChangeBehind(size_t offset) const {
  return static_cast<size_t>(std::upper_bound(changes_.begin(), changes_.end(), offset) - changes_.begin());
}

Source Provenance::At(size_t offset) const {
  return ChangeBehind(offset) % 2 == 0 ? first_ : Other(first_);
}

Source Provenance::Of(size_t begin, size_t end) const {
  if (begin >= end) return Source::kTemplate;
  const size_t next = ChangeBehind(begin);
  if (next < changes_.size() && changes_[next] < end) return Source::kContent;
  return next % 2 == 0 ? first_ : Other(first_);
}

void Provenance::Append(size_t size, const Provenance& other, size_t begin, size_t end) {
  if (begin >= end) return;
  size_t next = other.ChangeBehind(begin);
  Append(size, next % 2 == 0 ? other.first_ : Other(other.first_));
  for (; next < other.changes_.size() && other.changes_[next] < end; ++next)
    changes_.push_back(size + other.changes_[next] - begin);
}

Provenance Provenance::Slice(size_t begin, size_t end) const {
  if (is_uniform()) return begin < end ? *this : Provenance();
  Provenance slice;
  slice.Append(0, *this, begin, end);
  return slice;
}

Provenance Provenance::Through(const Alignment& alignment) const {
  if (is_uniform()) return *this;
  Provenance result;
  size_t source = 0;
  size_t size = 0;
  for (const Alignment::Step& step : alignment.steps()) {
    if (step.kept) {
      result.Append(size, *this, source, source + step.source_bytes);
    } else if (step.result_bytes > 0) {
      result.Append(size, Of(source, source + step.source_bytes));
    }
    source += step.source_bytes;
    size += step.result_bytes;
  }
  return result;
}

}  // namespace tandem
