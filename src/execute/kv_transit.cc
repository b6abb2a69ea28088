#include "execute/kv_transit.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/round_up.h"

namespace tandem {
namespace {

int64_t BlocksWithin(const KvShape& shape, int64_t max_tokens) {
  return DivideUp(max_tokens, shape.block_size);
}

size_t SlotOf(int64_t layer) {
  return static_cast<size_t>(layer % 2);
}

}  // namespace

size_t TransitSlots::BytesFor(const KvShape& shape, int64_t max_tokens) {
  return 2 * static_cast<size_t>(BlocksWithin(shape, max_tokens)) * shape.BlockBytes();
}

Result<std::unique_ptr<TransitSlots>> TransitSlots::Create(Device* device, const KvShape& shape,
                                                           int64_t max_tokens) {
  auto slots = std::make_unique<TransitSlots>();
  slots->shape_ = shape;
  slots->max_blocks_ = BlocksWithin(shape, max_tokens);
  for (Buffer& slot : slots->slots_) {
    TANDEM_ASSIGN_OR_RETURN(slot, device->Allocate(BytesFor(shape, max_tokens) / 2, MemoryKind::kDevice,
                                                   "KV in transit", {.flag = "kv-transit"}));
  }
  return slots;
}

KvLayerView TransitSlots::LayerView(int64_t layer) const {
  return {.data = slots_[SlotOf(layer)].data(), .shape = shape_, .num_blocks = max_blocks_};
}

KvTransit::KvTransit(Device* device, Ops* ops, const KvMemory* kv, const TransitSlots* slots)
    : ops_(ops), kv_(kv), slots_(slots), appended_(device->CreateEvent()) {
  for (size_t slot = 0; slot < 2; ++slot) {
    in_[slot] = device->CreateEvent();
    out_[slot] = device->CreateEvent();
    attended_[slot] = device->CreateEvent();
  }
}

void KvTransit::Begin(int64_t first_block) {
  chunks_.clear();
  any_in_ = false;
  end_block_ = first_block;
  num_layers_in_ = 0;
}

const std::vector<int32_t>& KvTransit::Add(const RowSpan& chunk, std::vector<int32_t> block_table) {
  const KvShape& shape = slots_->shape();
  const int64_t num_blocks = BlocksWithin(shape, chunk.end());
  TANDEM_CHECK(end_block_ + num_blocks <= slots_->max_blocks(),
               "sequence {}: {} blocks in transit beside {}, room for {}", chunk.sequence, num_blocks,
               end_block_, slots_->max_blocks());
  Chunk& added = chunks_.emplace_back();
  added.slot_blocks.resize(static_cast<size_t>(num_blocks));
  std::iota(added.slot_blocks.begin(), added.slot_blocks.end(), static_cast<int32_t>(end_block_));
  end_block_ += num_blocks;
  added.cpu_blocks = std::move(block_table);
  added.num_blocks_in = BlocksWithin(shape, chunk.start);
  added.first_block_out = chunk.start / shape.block_size;
  any_in_ = any_in_ || added.num_blocks_in > 0;
  return added.slot_blocks;
}

void KvTransit::CopyIn(int64_t layer, Stream& copy_stream) {
  if (layer > end_layer_ || layer >= kv_->layout(Tier::kCpu).num_layers) return;
  // The slot is free once layer - 2 has been attended; its copy out is earlier in this stream.
  if (layer >= begin_layer_ + 2) copy_stream.Wait(*attended_[SlotOf(layer)]);
  for (const Chunk& chunk : chunks_) {
    const auto count = static_cast<size_t>(chunk.num_blocks_in);
    if (count == 0) continue;
    ops_->CopyKv(copy_stream, {.gpu = slots_->LayerView(layer),
                               .cpu = kv_->LayerView(Tier::kCpu, layer),
                               .gpu_blocks = std::span(chunk.slot_blocks).first(count),
                               .cpu_blocks = std::span(chunk.cpu_blocks).first(count),
                               .to_cpu = false});
  }
  copy_stream.Record(*in_[SlotOf(layer)]);
  num_layers_in_ = layer + 1;
}

void KvTransit::Start(int64_t begin, int64_t end, Stream& copy_stream) {
  begin_layer_ = begin;
  end_layer_ = end;
  if (!any_in_) return;
  for (int64_t layer = std::max(begin, num_layers_in_); layer < begin + 2; ++layer)
    CopyIn(layer, copy_stream);
}

void KvTransit::AwaitSlot(int64_t layer, Stream& compute_stream) {
  if (chunks_.empty()) return;
  if (any_in_) compute_stream.Wait(*in_[SlotOf(layer)]);
  if (layer >= begin_layer_ + 2) compute_stream.Wait(*out_[SlotOf(layer)]);
}

void KvTransit::CopyOut(int64_t layer, Stream& compute_stream, Stream& copy_stream, IterationStamps* stamps) {
  if (chunks_.empty()) return;
  compute_stream.Record(*appended_);
  copy_stream.Wait(*appended_);
  stamps->Detail(copy_stream, {});
  for (const Chunk& chunk : chunks_) {
    const auto first = static_cast<size_t>(chunk.first_block_out);
    ops_->CopyKv(copy_stream, {.gpu = slots_->LayerView(layer),
                               .cpu = kv_->LayerView(Tier::kCpu, layer),
                               .gpu_blocks = std::span(chunk.slot_blocks).subspan(first),
                               .cpu_blocks = std::span(chunk.cpu_blocks).subspan(first),
                               .to_cpu = true});
  }
  copy_stream.Record(*out_[SlotOf(layer)]);
  stamps->Detail(copy_stream, "prefill to the cpu tier", layer);
}

void KvTransit::Attended(int64_t layer, Stream& compute_stream, Stream& copy_stream) {
  if (!any_in_) return;
  compute_stream.Record(*attended_[SlotOf(layer)]);
  CopyIn(layer + 2, copy_stream);
}

}  // namespace tandem
