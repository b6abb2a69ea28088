#include "execute/kv_transit.h"

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

KvTransit::KvTransit(Device* device, Ops* ops, const KvMemory* kv)
    : ops_(ops), kv_(kv), shape_(kv->layout(Tier::kGpu).shape), appended_(device->CreateEvent()) {
  for (size_t slot = 0; slot < 2; ++slot) {
    in_[slot] = device->CreateEvent();
    out_[slot] = device->CreateEvent();
    attended_[slot] = device->CreateEvent();
  }
}

size_t KvTransit::BytesFor(const KvShape& shape, int64_t max_tokens) {
  return 2 * static_cast<size_t>(BlocksWithin(shape, max_tokens)) * shape.BlockBytes();
}

Result<std::unique_ptr<KvTransit>> KvTransit::Create(Device* device, Ops* ops, const KvMemory* kv,
                                                     int64_t max_tokens) {
  auto transit = std::unique_ptr<KvTransit>(new KvTransit(device, ops, kv));
  transit->max_blocks_ = BlocksWithin(transit->shape_, max_tokens);
  for (Buffer& slot : transit->slots_) {
    TANDEM_ASSIGN_OR_RETURN(slot,
                            device->Allocate(BytesFor(transit->shape_, max_tokens) / 2, MemoryKind::kDevice,
                                             "KV in transit", {.flag = "max-num-batched-tokens"}));
  }
  return transit;
}

KvLayerView KvTransit::LayerView(int64_t layer) const {
  return {.data = slots_[SlotOf(layer)].data(), .shape = shape_, .num_blocks = max_blocks_};
}

void KvTransit::Begin() {
  chunks_.clear();
  any_in_ = false;
  num_blocks_used_ = 0;
}

const std::vector<int32_t>& KvTransit::Add(const RowSpan& chunk, std::vector<int32_t> block_table) {
  const int64_t num_blocks = BlocksWithin(shape_, chunk.end());
  TANDEM_CHECK(num_blocks_used_ + num_blocks <= max_blocks_,
               "sequence {}: {} blocks in transit beside {}, room for {}", chunk.sequence, num_blocks,
               num_blocks_used_, max_blocks_);
  Chunk& added = chunks_.emplace_back();
  added.slot_blocks.resize(static_cast<size_t>(num_blocks));
  std::iota(added.slot_blocks.begin(), added.slot_blocks.end(), static_cast<int32_t>(num_blocks_used_));
  num_blocks_used_ += num_blocks;
  added.cpu_blocks = std::move(block_table);
  added.num_blocks_in = BlocksWithin(shape_, chunk.start);
  added.first_block_out = chunk.start / shape_.block_size;
  any_in_ = any_in_ || added.num_blocks_in > 0;
  return added.slot_blocks;
}

void KvTransit::CopyIn(int64_t layer, Stream& copy_stream) {
  if (layer >= kv_->layout(Tier::kCpu).num_layers) return;
  // The slot is free once layer - 2 has been attended; its copy out is earlier in this stream.
  if (layer >= 2) copy_stream.Wait(*attended_[SlotOf(layer)]);
  for (const Chunk& chunk : chunks_) {
    const auto count = static_cast<size_t>(chunk.num_blocks_in);
    if (count == 0) continue;
    ops_->CopyKv(copy_stream, {.gpu = LayerView(layer),
                               .cpu = kv_->LayerView(Tier::kCpu, layer),
                               .gpu_blocks = std::span(chunk.slot_blocks).first(count),
                               .cpu_blocks = std::span(chunk.cpu_blocks).first(count),
                               .to_cpu = false});
  }
  copy_stream.Record(*in_[SlotOf(layer)]);
}

void KvTransit::Start(Stream& copy_stream) {
  if (!any_in_) return;
  CopyIn(0, copy_stream);
  CopyIn(1, copy_stream);
}

void KvTransit::AwaitSlot(int64_t layer, Stream& compute_stream) {
  if (chunks_.empty()) return;
  if (any_in_) compute_stream.Wait(*in_[SlotOf(layer)]);
  if (layer >= 2) compute_stream.Wait(*out_[SlotOf(layer)]);
}

void KvTransit::CopyOut(int64_t layer, Stream& compute_stream, Stream& copy_stream, IterationStamps* stamps) {
  if (chunks_.empty()) return;
  compute_stream.Record(*appended_);
  copy_stream.Wait(*appended_);
  stamps->Detail(copy_stream, {});
  for (const Chunk& chunk : chunks_) {
    const auto first = static_cast<size_t>(chunk.first_block_out);
    ops_->CopyKv(copy_stream, {.gpu = LayerView(layer),
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
