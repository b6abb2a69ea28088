#include "kv/kv_move_copy.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "ops/ops.h"

namespace tandem {

KvMoveCopy::KvMoveCopy(const KvMemory* memory, const BlockMove& move)
    : memory_(memory),
      move_(move),
      copied_blocks_(static_cast<size_t>(memory->layout(move.to).num_layers), 0) {
  TANDEM_CHECK(move_.source_blocks.size() == move_.destination_blocks.size(), "a move of {} blocks to {}",
               move_.source_blocks.size(), move_.destination_blocks.size());
}

CopyKvCount KvMoveCopy::CopyLayer(int64_t layer, Ops& ops, Stream& stream) {
  return CopyBlocks(layer, 0, num_blocks(), ops, stream);
}

CopyKvCount KvMoveCopy::CopyTokens(int64_t layer, int64_t begin, int64_t end, Ops& ops, Stream& stream) {
  const int64_t block_size = memory_->layout(move_.to).shape.block_size;
  TANDEM_CHECK(0 <= begin && begin < end, "sequence {}: tokens {} to {}", move_.sequence, begin, end);
  return CopyBlocks(layer, begin / block_size, (end + block_size - 1) / block_size, ops, stream);
}

CopyKvCount KvMoveCopy::CopyBlocks(int64_t layer, int64_t begin, int64_t end, Ops& ops, Stream& stream) {
  TANDEM_CHECK(layer >= 0 && layer < num_layers(), "layer {} of {}", layer, num_layers());
  int64_t& copied = copied_blocks_[static_cast<size_t>(layer)];
  TANDEM_CHECK(begin <= copied && end <= num_blocks(),
               "sequence {}, layer {}: blocks {} to {} of {} are copied after the first {}", move_.sequence,
               layer, begin, end, num_blocks(), copied);
  copied = std::max(copied, end);

  const auto blocks = [&](const std::vector<int32_t>& all) {
    return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  CopyKvArgs args;
  args.to_cpu = move_.to == Tier::kCpu;
  args.gpu = memory_->LayerView(Tier::kGpu, layer);
  args.cpu = memory_->LayerView(Tier::kCpu, layer);
  (args.to_cpu ? args.gpu_blocks : args.cpu_blocks) = blocks(move_.source_blocks);
  (args.to_cpu ? args.cpu_blocks : args.gpu_blocks) = blocks(move_.destination_blocks);
  return ops.CopyKv(stream, args);
}

bool KvMoveCopy::complete() const {
  return std::all_of(copied_blocks_.begin(), copied_blocks_.end(),
                     [this](int64_t copied) { return copied == num_blocks(); });
}

void KvMoveCopy::CheckComplete() const {
  TANDEM_CHECK(complete(), "the move of sequence {} ends before all of it is copied", move_.sequence);
}

}  // namespace tandem
