#include "ops/cuda/kv_copy/kv_copy.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "cpu_attention/kv_block.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kv_codes/recode_blocks.h"

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

// How the blocks of one call are converted, some of them at a time.
class KvCopier::Conversion {
 public:
  Conversion(CudaStream& stream, const CopyKvArgs& args, std::byte* staging)
      : stream_(stream),
        gpu_is_coded_(IsCoded(args.gpu.shape)),
        cpu_is_coded_(IsCoded(args.cpu.shape)),
        staging_(staging),
        max_ctas_(MaxConversionCtas(stream.target())) {
    const KvShape& numbers = gpu_is_coded_ ? args.cpu.shape : args.gpu.shape;
    const KvParts parts = PartsOf(args.cpu);
    size_t block_bytes = args.cpu.shape.BlockBytes();
    if (gpu_is_coded_ || cpu_is_coded_) {
      recoding_.codes = gpu_is_coded_ ? args.gpu.data : staging;
      recoding_.codes_are_listed = gpu_is_coded_;
      recoding_.heads = CodedHeads::Of(gpu_is_coded_ ? args.gpu : args.cpu);
      recoding_.heads_per_part = static_cast<int>(parts.heads_per_part);
    }
    if (gpu_is_coded_ && cpu_is_coded_) {
      max_blocks_ = std::min<size_t>(KvRecoding::kMaxBlocks, kStagingBytes / block_bytes);
      return;
    }
    recoding_.dtype = numbers.plain_dtype();
    recoding_.numbers = args.gpu.data;
    order_ = {
        .gpu = args.gpu.data,
        .staging = staging,
        .num_kv_heads = static_cast<int>(numbers.num_kv_heads),
        .heads_per_part = static_cast<int>(parts.heads_per_part),
        .block_size = static_cast<int>(numbers.block_size),
        .tile_tokens = static_cast<int>(KvTileTokens(numbers.block_size)),
        .row_units = static_cast<int>(BytesFor(recoding_.dtype, numbers.head_dim) / 16),
    };
    if (gpu_is_coded_) {
      // Rows lie in the second half, block after block.
      constexpr size_t kHalf = kStagingBytes / 2;
      recoding_.numbers = staging + kHalf;
      recoding_.heads_per_part = recoding_.heads.num_kv_heads;
      order_.gpu = staging + kHalf;
      std::iota(std::begin(order_.gpu_blocks), std::end(order_.gpu_blocks), 0);
      block_bytes *= 2;
    }
    max_blocks_ = std::min<size_t>(KvConversion::kMaxBlocks, kStagingBytes / block_bytes);
  }

  size_t max_blocks() const { return max_blocks_; }

  // At most max_blocks, between the gpu tier and staging memory.
  void Run(std::span<const int32_t> gpu_blocks, bool to_cpu) {
    recoding_.num_blocks = static_cast<int>(gpu_blocks.size());
    order_.num_blocks = recoding_.num_blocks;
    std::copy(gpu_blocks.begin(), gpu_blocks.end(),
              gpu_is_coded_ || cpu_is_coded_ ? std::begin(recoding_.blocks) : std::begin(order_.gpu_blocks));
    if (gpu_is_coded_ && cpu_is_coded_) {
      LaunchGatherCodes(stream_, recoding_, staging_, to_cpu, max_ctas_);
    } else if (cpu_is_coded_) {
      const auto launch = to_cpu ? LaunchNumbersToCodes : LaunchCodesToNumbers;
      launch(stream_, recoding_, max_ctas_);
    } else if (gpu_is_coded_ && to_cpu) {
      LaunchCodesToNumbers(stream_, recoding_, max_ctas_);
      LaunchKvConversion(stream_, order_, recoding_.dtype, true);
    } else if (gpu_is_coded_) {
      LaunchKvConversion(stream_, order_, recoding_.dtype, false);
      LaunchNumbersToCodes(stream_, recoding_, max_ctas_);
    } else {
      LaunchKvConversion(stream_, order_, recoding_.dtype, to_cpu);
    }
  }

 private:
  CudaStream& stream_;
  bool gpu_is_coded_;
  bool cpu_is_coded_;
  std::byte* staging_;
  int max_ctas_;
  KvRecoding recoding_;
  KvConversion order_;
  size_t max_blocks_ = 0;
};

CopyKvCount KvCopier::Copy(CudaStream& stream, const CopyKvArgs& args) {
  CopyKvCount count;
  if (args.gpu_blocks.empty()) return count;
  CheckKvShape(args.gpu);
  CheckKvShape(args.cpu);
  const KvFormat& gpu = args.gpu.shape.format;
  const KvFormat& cpu = args.cpu.shape.format;
  TANDEM_CHECK(gpu == cpu || gpu == KvFormat::Int8() || cpu == KvFormat::Int8(),
               "copy_kv: gpu blocks of {}, cpu blocks of {}", KvFormatName(gpu), KvFormatName(cpu));
  TANDEM_CHECK(reinterpret_cast<uintptr_t>(args.gpu.data) % 16 == 0, "copy_kv: gpu blocks at {}",
               args.gpu.data);
  Direction& direction = args.to_cpu ? to_cpu_ : from_cpu_;
  auto* staging = direction.staging.as<std::byte>();
  Conversion conversion(stream, args, staging);
  const size_t max_blocks = conversion.max_blocks();
  TANDEM_CHECK(max_blocks > 0, "copy_kv: a block of {} bytes, staging for {}", args.cpu.shape.BlockBytes(),
               kStagingBytes);
  stream.Wait(*direction.done);
  for (size_t first = 0; first < args.gpu_blocks.size(); first += max_blocks) {
    const size_t num_blocks = std::min(max_blocks, args.gpu_blocks.size() - first);
    const std::span<const int32_t> gpu_blocks = args.gpu_blocks.subspan(first, num_blocks);
    const std::span<const int32_t> cpu_blocks = args.cpu_blocks.subspan(first, num_blocks);
    if (args.to_cpu) conversion.Run(gpu_blocks, true);
    count += CopyStaged(stream, args.cpu, cpu_blocks, staging, args.to_cpu);
    if (!args.to_cpu) conversion.Run(gpu_blocks, false);
  }
  stream.Record(*direction.done);
  return count;
}

CopyKvCount CudaOps::CopyKv(Stream& stream, const CopyKvArgs& args) {
  CheckCopyKv(args);
  return kv_copier_->Copy(AsCudaStream(stream), args);
}

}  // namespace tandem
