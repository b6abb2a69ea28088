#include "execute/iteration_stamps.h"

#include "base/check.h"

namespace tandem {
namespace {

// Embedding, pre-projection, attention, post-projection, visits of cohorts, logits, sampling, and where
// shards exchange.
constexpr int64_t kStampsPerLayer = 24;
constexpr int64_t kStampsPerIteration = 16;

}  // namespace

Result<IterationStamps> IterationStamps::Allocate(Device* device, int64_t num_layers, bool detailed) {
  IterationStamps stamps;
  const int64_t capacity = kStampsPerIteration + (detailed ? num_layers * kStampsPerLayer : 0);
  TANDEM_ASSIGN_OR_RETURN(
      stamps.times_,
      device->Allocate(2 * static_cast<size_t>(capacity) * sizeof(uint64_t), MemoryKind::kPinned, "stamps"));
  return stamps;
}

void IterationStamps::Begin(Stream& stream) {
  labels_.clear();
  num_named_ = 0;
  half_ = alternate() ? half_ ^ 1U : 0;
  stream.Stamp(times());
}

void IterationStamps::Mark(Stream& stream, std::string_view what, int64_t layer) {
  for (; num_named_ < labels_.size(); ++num_named_) {
    StampLabel& label = labels_[num_named_];
    if (label.layer != kLayerToCome) continue;
    label.layer = layer;
    if (label.what == kToCome) label.what = what;
  }
  Stamp(stream, {what, layer});
}

void IterationStamps::Stamp(Stream& stream, const StampLabel& label) {
  labels_.push_back(label);
  TANDEM_CHECK(labels_.size() < capacity(), "{} stamps", labels_.size());
  stream.Stamp(times() + labels_.size());
}

void IterationStamps::AddTo(Timeline* timeline, std::string_view lane, int64_t offset_ns) const {
  for (size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i].what.empty()) continue;
    timeline->Add(lane, labels_[i].what, labels_[i].layer, TimeOf(i) + offset_ns, TimeOf(i + 1) + offset_ns);
  }
}

}  // namespace tandem
