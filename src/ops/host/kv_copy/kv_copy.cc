#include "ops/kv_copy.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "cpu_attention/append_token.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"

namespace tandem {
namespace {

// A head of a block, token by token.
void ConvertHead(const KvLayerView& from, int64_t from_block, const KvLayerView& to, int64_t to_block,
                 int64_t head) {
  const int64_t block_size = from.shape.block_size;
  std::vector<float> key(static_cast<size_t>(from.shape.head_dim));
  std::vector<float> value(key.size());
  for (int64_t token = 0; token < block_size; ++token) {
    ReadToken(from, static_cast<int32_t>(from_block * block_size + token), head, key.data(), value.data());
    AppendToken(to, static_cast<int32_t>(to_block * block_size + token), head, 1, key.data(), value.data(),
                DType::kF32);
  }
}

CopyKvCount ConvertBlocks(Stream& stream, const CopyKvArgs& args) {
  struct Pair {
    int32_t from = 0;
    int32_t to = 0;
  };
  std::vector<Pair> pairs;
  pairs.reserve(args.gpu_blocks.size());
  for (size_t i = 0; i < args.gpu_blocks.size(); ++i) {
    pairs.push_back(args.to_cpu ? Pair{args.gpu_blocks[i], args.cpu_blocks[i]}
                                : Pair{args.cpu_blocks[i], args.gpu_blocks[i]});
  }
  const CopyKvCount count = {.num_copies = static_cast<int64_t>(pairs.size()),
                             .num_bytes = static_cast<int64_t>(pairs.size() * args.cpu.shape.BlockBytes())};
  AsHostStream(stream).Enqueue([from = args.to_cpu ? args.gpu : args.cpu,
                                to = args.to_cpu ? args.cpu : args.gpu,
                                pairs = std::move(pairs)](ComputePool& pool) {
    const int64_t num_heads = from.shape.num_kv_heads;
    pool.ParallelFor(static_cast<int64_t>(pairs.size()) * num_heads, [&](int64_t task) {
      const Pair& pair = pairs[static_cast<size_t>(task / num_heads)];
      ConvertHead(from, pair.from, to, pair.to, task % num_heads);
    });
  });
  return count;
}

}  // namespace

// Both sides have the order of the CPU's kernels: bytes of one format move as they are. Blocks that are
// neighbours on both sides move in one copy a part.
CopyKvCount HostOps::CopyKv(Stream& stream, const CopyKvArgs& args) {
  CheckCopyKv(args);
  if (args.gpu.shape.format != args.cpu.shape.format) return ConvertBlocks(stream, args);
  const KvParts parts = PartsOf(args.cpu);
  const size_t head_bytes = args.cpu.shape.HeadBytes();
  const size_t gpu_block_bytes = args.gpu.shape.BlockBytes();
  const size_t cpu_block_bytes = static_cast<size_t>(parts.heads_per_part) * head_bytes;
  CopyKvCount count;
  size_t run_length = 0;
  for (size_t first = 0; first < args.cpu_blocks.size(); first += run_length) {
    const int32_t gpu_block = args.gpu_blocks[first];
    const int32_t cpu_block = args.cpu_blocks[first];
    run_length = 1;
    while (first + run_length < args.cpu_blocks.size() &&
           args.gpu_blocks[first + run_length] == gpu_block + static_cast<int64_t>(run_length) &&
           args.cpu_blocks[first + run_length] == cpu_block + static_cast<int64_t>(run_length)) {
      ++run_length;
    }
    for (int64_t part = 0; part < parts.num_parts; ++part) {
      const int64_t first_head = part * parts.heads_per_part;
      const auto num_heads =
          static_cast<size_t>(std::min(parts.heads_per_part, args.cpu.shape.num_kv_heads - first_head));
      std::byte* gpu = args.gpu.Head(gpu_block, first_head);
      std::byte* cpu = args.cpu.Head(cpu_block, first_head);
      const size_t piece_bytes = num_heads * head_bytes;
      std::byte* destination = args.to_cpu ? cpu : gpu;
      const std::byte* source = args.to_cpu ? gpu : cpu;
      if (piece_bytes == gpu_block_bytes && piece_bytes == cpu_block_bytes) {
        stream.Copy(destination, source, run_length * piece_bytes);
      } else {
        stream.CopyRows(destination, args.to_cpu ? cpu_block_bytes : gpu_block_bytes, source,
                        args.to_cpu ? gpu_block_bytes : cpu_block_bytes, piece_bytes, run_length);
      }
      count += {.num_copies = 1, .num_bytes = static_cast<int64_t>(run_length * piece_bytes)};
    }
  }
  return count;
}

}  // namespace tandem
