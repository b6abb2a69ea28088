#include "kv/kv_swap.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "ops/ops.h"

namespace tandem {

KvSwap::KvSwap(SequenceId sequence, Tier to, const Side& source, std::vector<int32_t> source_blocks,
               const Side& destination, std::vector<int32_t> destination_blocks)
    : sequence_(sequence),
      to_(to),
      source_(source),
      destination_(destination),
      source_blocks_(std::move(source_blocks)),
      destination_blocks_(std::move(destination_blocks)),
      copied_blocks_(static_cast<size_t>(source.layout->num_layers), 0) {
  TANDEM_CHECK(source_blocks_.size() == destination_blocks_.size(), "a swap of {} blocks to {}",
               source_blocks_.size(), destination_blocks_.size());
}

CopyKvCount KvSwap::CopyLayer(int64_t layer, Ops& ops, Stream& stream) {
  return CopyBlocks(layer, 0, static_cast<int64_t>(source_blocks_.size()), ops, stream);
}

CopyKvCount KvSwap::CopyTokens(int64_t layer, int64_t begin, int64_t end, Ops& ops, Stream& stream) {
  const int64_t block_size = source_.layout->shape.block_size;
  TANDEM_CHECK(0 <= begin && begin < end, "sequence {}: tokens {} to {}", sequence_, begin, end);
  return CopyBlocks(layer, begin / block_size, (end + block_size - 1) / block_size, ops, stream);
}

CopyKvCount KvSwap::CopyBlocks(int64_t layer, int64_t begin, int64_t end, Ops& ops, Stream& stream) {
  TANDEM_CHECK(layer >= 0 && layer < num_layers(), "layer {} of {}", layer, num_layers());
  int64_t& copied = copied_blocks_[static_cast<size_t>(layer)];
  TANDEM_CHECK(begin <= copied && end <= static_cast<int64_t>(source_blocks_.size()),
               "sequence {}, layer {}: blocks {} to {} of {} are copied after the first {}", sequence_, layer,
               begin, end, source_blocks_.size(), copied);
  copied = std::max(copied, end);

  const auto blocks = [&](const std::vector<int32_t>& all) {
    return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  const KvLayerView source = source_.layout->LayerView(source_.memory, layer);
  const KvLayerView destination = destination_.layout->LayerView(destination_.memory, layer);
  CopyKvArgs args;
  args.to_cpu = to_ == Tier::kCpu;
  (args.to_cpu ? args.gpu : args.cpu) = source;
  (args.to_cpu ? args.cpu : args.gpu) = destination;
  (args.to_cpu ? args.gpu_blocks : args.cpu_blocks) = blocks(source_blocks_);
  (args.to_cpu ? args.cpu_blocks : args.gpu_blocks) = blocks(destination_blocks_);
  return ops.CopyKv(stream, args);
}

bool KvSwap::complete() const {
  return std::all_of(copied_blocks_.begin(), copied_blocks_.end(),
                     [&](int64_t copied) { return copied == static_cast<int64_t>(source_blocks_.size()); });
}

}  // namespace tandem
