#include "ops/cuda/kv_copy/kv_copy.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/check.h"
#include "cpu_attention/kv_block.h"
#include "ops/cuda/cuda_ops.h"

namespace tandem {
namespace {

// Between staging and the cpu tier: one transfer for each run of neighbouring cpu blocks in each part.
CopyKvCount CopyStaged(Stream& stream, const KvLayerView& cpu, std::span<const int32_t> blocks,
                       std::byte* staging, bool to_cpu) {
  const KvParts parts = PartsOf(cpu);
  const size_t head_bytes = cpu.shape.HeadBytes();
  const size_t cpu_block_bytes = static_cast<size_t>(parts.heads_per_part) * head_bytes;
  CopyKvCount count;
  for (int64_t part = 0; part < parts.num_parts; ++part) {
    const int64_t first_head = part * parts.heads_per_part;
    const int64_t num_heads = std::min(parts.heads_per_part, cpu.shape.num_kv_heads - first_head);
    const size_t block_bytes = static_cast<size_t>(num_heads) * head_bytes;
    size_t run_length = 0;
    for (size_t first = 0; first < blocks.size(); first += run_length) {
      run_length = 1;
      while (first + run_length < blocks.size() &&
             blocks[first + run_length] == blocks[first] + static_cast<int64_t>(run_length)) {
        ++run_length;
      }
      std::byte* in_cpu = cpu.Head(blocks[first], first_head);
      void* destination = to_cpu ? in_cpu : staging;
      const void* source = to_cpu ? staging : in_cpu;
      if (block_bytes == cpu_block_bytes) {
        stream.Copy(destination, source, run_length * block_bytes);
      } else {
        stream.CopyRows(destination, to_cpu ? cpu_block_bytes : block_bytes, source,
                        to_cpu ? block_bytes : cpu_block_bytes, block_bytes, run_length);
      }
      staging += run_length * block_bytes;
      count += {.num_copies = 1, .num_bytes = static_cast<int64_t>(run_length * block_bytes)};
    }
  }
  return count;
}

}  // namespace

KvCopier::KvCopier(Device* device) {
  for (Direction* direction : {&to_cpu_, &from_cpu_}) {
    auto staging = device->Allocate(kStagingBytes, MemoryKind::kDevice, "staging of KV copies");
    TANDEM_CHECK(staging.ok(), "{}", staging.error().message);
    direction->staging = std::move(staging).value();
    direction->done = device->CreateEvent();
  }
}

CopyKvCount KvCopier::Copy(CudaStream& stream, const CopyKvArgs& args) {
  CopyKvCount count;
  if (args.gpu_blocks.empty()) return count;
  CheckKvShape(args.cpu);
  const KvShape& shape = args.gpu.shape;
  TANDEM_CHECK(shape.format == args.cpu.shape.format, "copy_kv: gpu blocks of {}, cpu blocks of {}",
               KvFormatName(shape.format), KvFormatName(args.cpu.shape.format));
  const DType dtype = shape.plain_dtype();
  const size_t block_bytes = shape.BlockBytes();
  TANDEM_CHECK(block_bytes <= kStagingBytes, "copy_kv: a block of {} bytes, staging for {}", block_bytes,
               kStagingBytes);
  TANDEM_CHECK(reinterpret_cast<uintptr_t>(args.gpu.data) % 16 == 0, "copy_kv: gpu blocks at {}",
               args.gpu.data);
  Direction& direction = args.to_cpu ? to_cpu_ : from_cpu_;
  auto* staging = direction.staging.as<std::byte>();
  KvConversion conversion = {
      .gpu = args.gpu.data,
      .staging = staging,
      .num_kv_heads = static_cast<int>(shape.num_kv_heads),
      .heads_per_part = static_cast<int>(PartsOf(args.cpu).heads_per_part),
      .block_size = static_cast<int>(shape.block_size),
      .tile_tokens = static_cast<int>(KvTileTokens(shape.block_size)),
      .row_units = static_cast<int>(BytesFor(dtype, shape.head_dim) / 16),
  };
  const size_t max_blocks = std::min<size_t>(KvConversion::kMaxBlocks, kStagingBytes / block_bytes);
  stream.Wait(*direction.done);
  for (size_t first = 0; first < args.gpu_blocks.size(); first += max_blocks) {
    const size_t num_blocks = std::min(max_blocks, args.gpu_blocks.size() - first);
    conversion.num_blocks = static_cast<int>(num_blocks);
    std::copy_n(args.gpu_blocks.begin() + static_cast<std::ptrdiff_t>(first), num_blocks,
                std::begin(conversion.gpu_blocks));
    const std::span<const int32_t> cpu_blocks = args.cpu_blocks.subspan(first, num_blocks);
    if (args.to_cpu) LaunchKvConversion(stream, conversion, dtype, true);
    count += CopyStaged(stream, args.cpu, cpu_blocks, staging, args.to_cpu);
    if (!args.to_cpu) LaunchKvConversion(stream, conversion, dtype, false);
  }
  stream.Record(*direction.done);
  return count;
}

CopyKvCount CudaOps::CopyKv(Stream& stream, const CopyKvArgs& args) {
  CheckCopyKv(args);
  return kv_copier_->Copy(AsCudaStream(stream), args);
}

}  // namespace tandem
