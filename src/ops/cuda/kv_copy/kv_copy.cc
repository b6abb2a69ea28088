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
        gathers_(gpu_is_coded_ && args.gpu.shape.format == args.cpu.shape.format),
        staging_(staging),
        max_ctas_(MaxConversionCtas(stream.target())) {
    const KvParts parts = PartsOf(args.cpu);
    const size_t cpu_block_bytes = args.cpu.shape.BlockBytes();
    // What lies between two tiers of which one at least has numbers, or codes of its own.
    KvShape numbers = gpu_is_coded_ ? args.cpu.shape : args.gpu.shape;
    if (gpu_is_coded_ && cpu_is_coded_) numbers.format = KvFormat::Plain(DType::kF32);
    // Of codes in the gpu tier: rows, block after block, behind what the cpu tier gets.
    const size_t row_block_bytes = gpu_is_coded_ && !gathers_ ? numbers.BlockBytes() : 0;
    max_blocks_ =
        std::min<size_t>(KvConversion::kMaxBlocks, kStagingBytes / (cpu_block_bytes + row_block_bytes));
    static_assert(KvConversion::kMaxBlocks == KvRecoding::kMaxBlocks);
    std::byte* rows = staging + max_blocks_ * cpu_block_bytes;

    if (gpu_is_coded_) {
      of_gpu_.codes = args.gpu.data;
      of_gpu_.codes_are_listed = true;
      of_gpu_.heads = CodedHeads::Of(args.gpu);
      of_gpu_.heads_per_part = gathers_ ? static_cast<int>(parts.heads_per_part) : of_gpu_.heads.num_kv_heads;
      of_gpu_.numbers = rows;
    }
    if (gathers_) return;
    of_gpu_.dtype = numbers.plain_dtype();
    if (cpu_is_coded_) {
      of_cpu_.codes = staging;
      of_cpu_.heads = CodedHeads::Of(args.cpu);
      of_cpu_.heads_per_part = static_cast<int>(parts.heads_per_part);
      of_cpu_.numbers = gpu_is_coded_ ? rows : args.gpu.data;
      of_cpu_.dtype = numbers.plain_dtype();
      std::iota(std::begin(of_cpu_.blocks), std::end(of_cpu_.blocks), 0);
      return;
    }
    order_ = {
        .gpu = gpu_is_coded_ ? rows : args.gpu.data,
        .staging = staging,
        .num_kv_heads = static_cast<int>(numbers.num_kv_heads),
        .heads_per_part = static_cast<int>(parts.heads_per_part),
        .block_size = static_cast<int>(numbers.block_size),
        .tile_tokens = static_cast<int>(KvTileTokens(numbers.block_size)),
        .row_units = static_cast<int>(BytesFor(numbers.plain_dtype(), numbers.head_dim) / 16),
    };
    std::iota(std::begin(order_.gpu_blocks), std::end(order_.gpu_blocks), 0);
  }

  size_t max_blocks() const { return max_blocks_; }

  // At most max_blocks, between the gpu tier and staging memory.
  void Run(std::span<const int32_t> gpu_blocks, bool to_cpu) {
    const auto num_blocks = static_cast<int>(gpu_blocks.size());
    of_gpu_.num_blocks = num_blocks;
    of_cpu_.num_blocks = num_blocks;
    order_.num_blocks = num_blocks;
    // The others follow each other.
    int32_t* listed = gpu_is_coded_   ? std::begin(of_gpu_.blocks)
                      : cpu_is_coded_ ? std::begin(of_cpu_.blocks)
                                      : std::begin(order_.gpu_blocks);
    std::copy(gpu_blocks.begin(), gpu_blocks.end(), listed);
    if (gathers_) {
      LaunchGatherCodes(stream_, of_gpu_, staging_, to_cpu, max_ctas_);
    } else if (to_cpu) {
      if (gpu_is_coded_) LaunchCodesToNumbers(stream_, of_gpu_, max_ctas_);
      NumbersToStaging();
    } else {
      StagingToNumbers();
      if (gpu_is_coded_) LaunchNumbersToCodes(stream_, of_gpu_, max_ctas_);
    }
  }

 private:
  void NumbersToStaging() {
    if (cpu_is_coded_) {
      LaunchNumbersToCodes(stream_, of_cpu_, max_ctas_);
    } else {
      LaunchKvConversion(stream_, order_, of_gpu_.dtype, true);
    }
  }
  void StagingToNumbers() {
    if (cpu_is_coded_) {
      LaunchCodesToNumbers(stream_, of_cpu_, max_ctas_);
    } else {
      LaunchKvConversion(stream_, order_, of_gpu_.dtype, false);
    }
  }

  CudaStream& stream_;
  bool gpu_is_coded_;
  bool cpu_is_coded_;
  bool gathers_;
  std::byte* staging_;
  int max_ctas_;
  KvRecoding of_gpu_;  // codes of the gpu tier and numbers
  KvRecoding of_cpu_;  // codes of the cpu tier and numbers
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
  TANDEM_CHECK(gpu == cpu || gpu.is_coded() || cpu.is_coded(), "copy_kv: gpu blocks of {}, cpu blocks of {}",
               KvFormatName(gpu), KvFormatName(cpu));
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
