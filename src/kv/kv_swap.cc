#include "kv/kv_swap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {

KvSwap::KvSwap(SequenceId sequence, Tier to, const Side& source, std::vector<int32_t> source_blocks,
               const Side& destination, const std::vector<int32_t>& destination_blocks)
    : sequence_(sequence),
      to_(to),
      source_(source),
      destination_(destination),
      source_blocks_(std::move(source_blocks)),
      copied_blocks_(static_cast<size_t>(source.layout->num_layers), 0) {
  TANDEM_CHECK(source.layout->parts.num_parts == 1 || destination.layout->parts.num_parts == 1,
               "a swap from {} parts to {}", source.layout->parts.num_parts,
               destination.layout->parts.num_parts);
  TANDEM_CHECK(source_blocks_.size() == destination_blocks.size(), "a swap of {} blocks to {}",
               source_blocks_.size(), destination_blocks.size());
  for (size_t i = 0; i < source_blocks_.size(); ++i) {
    const bool neighbours = i > 0 && source_blocks_[i] == source_blocks_[i - 1] + 1 &&
                            destination_blocks[i] == destination_blocks[i - 1] + 1;
    if (neighbours) {
      ++runs_.back().num_blocks;
    } else {
      runs_.push_back({static_cast<int64_t>(i), 1, source_blocks_[i], destination_blocks[i]});
    }
  }
}

CopyCount KvSwap::CopyLayer(int64_t layer, Stream& stream) {
  return CopyBlocks(layer, 0, static_cast<int64_t>(source_blocks_.size()), stream);
}

CopyCount KvSwap::CopyTokens(int64_t layer, int64_t begin, int64_t end, Stream& stream) {
  const int64_t block_size = source_.layout->shape.block_size;
  TANDEM_CHECK(0 <= begin && begin < end, "sequence {}: tokens {} to {}", sequence_, begin, end);
  return CopyBlocks(layer, begin / block_size, (end + block_size - 1) / block_size, stream);
}

CopyCount KvSwap::CopyBlocks(int64_t layer, int64_t begin, int64_t end, Stream& stream) {
  TANDEM_CHECK(layer >= 0 && layer < num_layers(), "layer {} of {}", layer, num_layers());
  int64_t& copied = copied_blocks_[static_cast<size_t>(layer)];
  TANDEM_CHECK(begin <= copied && end <= static_cast<int64_t>(source_blocks_.size()),
               "sequence {}, layer {}: blocks {} to {} of {} are copied after the first {}", sequence_, layer,
               begin, end, source_blocks_.size(), copied);
  copied = std::max(copied, end);

  const bool source_is_split = source_.layout->parts.num_parts > 1;
  const TierLayout& split = source_is_split ? *source_.layout : *destination_.layout;
  const size_t head_bytes = split.shape.HeadBytes();
  const size_t source_block_bytes = source_.layout->PartBlockBytes();
  const size_t destination_block_bytes = destination_.layout->PartBlockBytes();
  CopyCount count;
  auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                              [](int64_t block, const Run& r) { return block < r.first; });
  if (run != runs_.begin()) --run;
  for (; run != runs_.end() && run->first < end; ++run) {
    const int64_t from = std::max(begin, run->first);
    const int64_t num_blocks = std::min(end, run->first + run->num_blocks) - from;
    const auto source_block = static_cast<size_t>(run->source + from - run->first);
    const auto destination_block = static_cast<size_t>(run->destination + from - run->first);
    for (int64_t part = 0; part < split.parts.num_parts; ++part) {
      // In the tier with one part, the heads of earlier parts come first in every block.
      const size_t heads_before = static_cast<size_t>(part * split.parts.heads_per_part) * head_bytes;
      const std::byte* source = source_.layout->PartLayer(source_.memory, source_is_split ? part : 0, layer) +
                                source_block * source_block_bytes + (source_is_split ? 0 : heads_before);
      std::byte* destination =
          destination_.layout->PartLayer(destination_.memory, source_is_split ? 0 : part, layer) +
          destination_block * destination_block_bytes + (source_is_split ? heads_before : 0);
      const size_t piece_bytes = static_cast<size_t>(split.HeadsOf(part)) * head_bytes;
      const auto num_pieces = static_cast<size_t>(num_blocks);
      if (piece_bytes == source_block_bytes && piece_bytes == destination_block_bytes) {
        stream.Copy(destination, source, num_pieces * piece_bytes);
      } else {
        stream.CopyRows(destination, destination_block_bytes, source, source_block_bytes, piece_bytes,
                        num_pieces);
      }
      ++count.num_copies;
      count.num_bytes += static_cast<int64_t>(num_pieces * piece_bytes);
    }
  }
  return count;
}

bool KvSwap::complete() const {
  return std::all_of(copied_blocks_.begin(), copied_blocks_.end(),
                     [&](int64_t copied) { return copied == static_cast<int64_t>(source_blocks_.size()); });
}

}  // namespace tandem
