#include "execute/lanes.h"

namespace tandem {

Result<std::unique_ptr<Lanes>> Lanes::Create(Device* device, int64_t num_layers, const Which& which,
                                             Timeline* timeline, const Shard& shard) {
  auto lanes = std::unique_ptr<Lanes>(new Lanes());
  lanes->device_ = device;
  lanes->timeline_ = timeline;
  lanes->is_last_shard_ = shard.rank + 1 == shard.size;
  const auto open = [&](Lane* lane, StreamKind kind, std::string_view stream_name) -> Status {
    TANDEM_ASSIGN_OR_RETURN(lane->stamps, IterationStamps::Allocate(device, num_layers, timeline != nullptr));
    lane->stream = device->CreateStream(kind, stream_name);
    lane->timeline_name = LaneOfShard(lane->timeline_name, shard.rank, shard.size);
    return {};
  };
  TANDEM_RETURN_IF_ERROR(open(&lanes->compute_, StreamKind::kCompute, "compute"));
  TANDEM_RETURN_IF_ERROR(open(&lanes->copy_, StreamKind::kCopy, "copy"));
  if (which.cpu_tier) {
    TANDEM_RETURN_IF_ERROR(open(&lanes->rows_out_, StreamKind::kCopy, "rows to the host"));
    TANDEM_RETURN_IF_ERROR(open(&lanes->rows_in_, StreamKind::kCopy, "rows from the host"));
  }
  if (which.riders) TANDEM_RETURN_IF_ERROR(open(&lanes->riders_, StreamKind::kCompute, "riders"));
  // Graphs are recorded before the first iteration.
  lanes->SetDetailed(lanes->timeline_wanted());
  return lanes;
}

void Lanes::SetDetailed(bool detailed) {
  // The clocks drift apart over hours in which nobody watches.
  if (detailed && !detailed_) clock_offset_ns_ = device_->ClockOffsetNs();
  detailed_ = detailed;
  for (Lane* lane : {&compute_, &copy_, &rows_out_, &rows_in_, &riders_}) lane->stamps.SetDetailed(detailed);
}

void Lanes::BeginMoves() {
  SetDetailed(timeline_wanted());
  if (detailed_) copy_.stamps.Begin(*copy_.stream);
}

void Lanes::Begin() {
  compute_.stamps.Begin(*compute_.stream);
  if (!detailed_) return;
  for (Lane* lane : {&rows_out_, &rows_in_, &riders_}) {
    if (lane->stream) lane->stamps.Begin(*lane->stream);
  }
}

void Lanes::Synchronize() {
  for (Lane* lane : {&compute_, &copy_, &rows_out_, &rows_in_, &riders_}) {
    if (lane->stream) lane->stream->Synchronize();
  }
}

void Lanes::AddToTimeline() {
  if (!detailed_) return;
  for (const Lane* lane : {&compute_, &copy_, &rows_out_, &rows_in_, &riders_}) {
    if (lane->stream) lane->stamps.AddTo(timeline_, lane->timeline_name, clock_offset_ns_);
  }
  if (is_last_shard_) timeline_->EndIteration();
}

}  // namespace tandem
