// When a stream reached which point of an iteration, by the device's clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/timeline.h"
#include "device/device.h"
#include "model/decoder.h"

namespace tandem {

// What ended at a stamp. what: static storage.
struct StampLabel {
  std::string_view what;
  int64_t layer = -1;  // -1: not of one layer
};

// When an iteration began and ended, once the stream has run. Device clock.
struct StampedTime {
  const volatile uint64_t* begin = nullptr;
  const volatile uint64_t* end = nullptr;
  int64_t begin_ns() const { return static_cast<int64_t>(*begin); }
  int64_t end_ns() const { return static_cast<int64_t>(*end); }
};

// Where there are no Detail stamps, those of the iteration before stay as they are while the next one runs.
class IterationStamps {
 public:
  // detailed: with room for Detail stamps; there are none before SetDetailed. Errors: kResourceExhausted.
  static Result<IterationStamps> Allocate(Device* device, int64_t num_layers, bool detailed);
  // Before Begin or BeginRecording: whether there are Detail stamps from now on, each of which costs the
  // stream about a microsecond.
  void SetDetailed(bool detailed) { detailed_ = detailed; }

  void Begin(Stream& stream);
  // The work since the stamp before was `what`.
  void Mark(Stream& stream, std::string_view what, int64_t layer = -1);
  // Left out once there is no more room for it. what empty: the time since the stamp before was idle.
  void Detail(Stream& stream, std::string_view what, int64_t layer = -1) {
    if (HasRoom()) Mark(stream, what, layer);
  }

  // What was done since the stamp before is what the next Mark or Detail says, and so is what comes behind
  // the exchange; the exchange itself is `what`, of that one's layer.
  void BeforeExchange(Stream& stream) {
    if (HasRoom()) Stamp(stream, {kToCome, kLayerToCome});
  }
  void AfterExchange(Stream& stream, std::string_view what) {
    if (HasRoom()) Stamp(stream, {what, kLayerToCome});
  }

  // Stamps of recorded work: BeginRecording, marks between the stream's BeginCapture and EndCapture, then
  // the labels. A replay follows Begin directly.
  void BeginRecording() {
    labels_.clear();
    num_named_ = 0;
    half_ = 0;
    recorded_ = recorded_ || detailed_;
  }
  const std::vector<StampLabel>& labels() const { return labels_; }
  void Replay(const std::vector<StampLabel>& labels) { labels_ = labels; }

  // From Begin to the last mark so far.
  StampedTime time() const { return {times(), times() + labels_.size()}; }
  // Whether the iteration after this one may be enqueued before this one's times are read.
  bool alternate() const { return !detailed_ && !recorded_; }
  // offset_ns: Device::ClockOffsetNs.
  void AddTo(Timeline* timeline, std::string_view lane, int64_t offset_ns) const;

 private:
  static constexpr size_t kUndetailedStamps = 8;
  static constexpr std::string_view kToCome = "to come";
  static constexpr int64_t kLayerToCome = -2;
  // For a Detail.
  bool HasRoom() const { return detailed_ && labels_.size() + kUndetailedStamps < capacity(); }
  void Stamp(Stream& stream, const StampLabel& label);
  size_t capacity() const { return times_.size_bytes() / sizeof(uint64_t) / 2; }
  uint64_t* times() const { return times_.as<uint64_t>() + half_ * capacity(); }
  int64_t TimeOf(size_t stamp) const {
    return static_cast<int64_t>(static_cast<const volatile uint64_t*>(times())[stamp]);
  }

  // Pinned, twice: when the iteration began, then one for each label. Graphs with stamps write to the first
  // half.
  Buffer times_;
  size_t half_ = 0;
  bool detailed_ = false;
  bool recorded_ = false;  // there are such graphs
  std::vector<StampLabel> labels_;
  size_t num_named_ = 0;  // labels before that are complete
};

// What a decoder's exchange is in the stamps of the stream that it is on.
class StampedExchange : public ExchangeObserver {
 public:
  explicit StampedExchange(IterationStamps* stamps) : stamps_(stamps) {}
  void BeforeExchange(Stream& stream) override { stamps_->BeforeExchange(stream); }
  void AfterExchange(Stream& stream, std::string_view what) override { stamps_->AfterExchange(stream, what); }

 private:
  IterationStamps* const stamps_;
};

}  // namespace tandem
