#include "ops/cuda/attention/prefill_attention.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/round_up.h"
#include "ops/cuda/attention/prefill_kernels.h"
#include "ops/cuda/attention/prefill_merge.h"
#include "ops/cuda/kv_codes/recode_blocks.h"

namespace tandem {
namespace {

using Launch = void (*)(CudaStream&, const PrefillLaunch&);

struct Kernels {
  DType dtype;
  int64_t head_dim;
  Launch launch;
  // For long sequences, if this build has it.
  Launch launch_long;
  int64_t long_tile_rows;
};

#ifdef TANDEM_FLASH_ATTENTION3
constexpr Launch kLongH128Bf16 = LaunchLongPrefillH128Bf16;
constexpr Launch kLongH128Fp16 = LaunchLongPrefillH128Fp16;
#else
constexpr Launch kLongH128Bf16 = nullptr;
constexpr Launch kLongH128Fp16 = nullptr;
#endif

constexpr Kernels kKernels[] = {
    {DType::kBF16, 64, LaunchPrefillH64Bf16, nullptr, 128},
    {DType::kF16, 64, LaunchPrefillH64Fp16, nullptr, 128},
    {DType::kBF16, 128, LaunchPrefillH128Bf16, kLongH128Bf16, 128},
    {DType::kF16, 128, LaunchPrefillH128Fp16, kLongH128Fp16, 128},
    {DType::kBF16, 256, LaunchPrefillH256Bf16, nullptr, 128},
    {DType::kF16, 256, LaunchPrefillH256Fp16, nullptr, 128},
};

// From here on FA3 gains (512 rows: 12.6 against 18 us on an H200).
constexpr int64_t kLongRows = 512;
// A tile of 16 rows spreads its keys over the warps, which takes 72 KiB; one of 64 needs 64.
constexpr int kSmallTileSharedBytes = 72 * 1024;

const Kernels* FindKernels(DType rows, int64_t head_dim) {
  for (const Kernels& kernels : kKernels) {
    if (kernels.dtype == rows && kernels.head_dim == head_dim) return &kernels;
  }
  return nullptr;
}

// What the kernels read.
KvShape NumbersOf(KvShape kv, DType rows) {
  kv.format = KvFormat::Plain(rows);
  return kv;
}

// Blocks of codes whose numbers are there at a time: those of the longest sequence at least. 0: no codes.
int64_t StagedBlocks(const AttentionCapacity& capacity) {
  if (!IsCoded(capacity.kv)) return 0;
  if (capacity.max_context == 0) return capacity.max_blocks;
  return std::min(capacity.max_blocks, DivideUp(capacity.max_context, capacity.kv.block_size));
}

bool UsesLong(const Kernels& kernels, const CudaTarget& target) {
  return kernels.launch_long != nullptr && target.compute_capability == 90;
}

PrefillShape ShapeOf(const KvShape& kv, DType rows, int64_t num_heads, const CudaTarget& target) {
  const Kernels& kernels = *FindKernels(rows, kv.head_dim);
  PrefillShape shape;
  shape.num_heads = num_heads;
  shape.num_kv_heads = kv.num_kv_heads;
  shape.block_size = kv.block_size;
  shape.num_sms = target.num_sms;
  shape.small_tile_rows = target.max_shared_bytes_per_block >= kSmallTileSharedBytes ? 16 : 64;
  shape.large_tile_rows = kv.head_dim > 128 ? 64 : 128;
  shape.long_rows = UsesLong(kernels, target) ? kLongRows : 0;
  shape.long_tile_rows = kernels.long_tile_rows;
  return shape;
}

bool Aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

}  // namespace

bool PrefillAttention::Supports(const KvShape& kv, DType rows, int64_t num_heads, const CudaTarget& target) {
  return FindKernels(rows, kv.head_dim) != nullptr && (IsCoded(kv) || kv.format == KvFormat::Plain(rows)) &&
         kv.block_size == 32 && kv.num_kv_heads > 0 && num_heads > 0 && num_heads % kv.num_kv_heads == 0 &&
         target.compute_capability >= (rows == DType::kBF16 ? 80 : 75);
}

std::string PrefillAttention::Description(const KvShape& kv, DType rows, const CudaTarget& target) {
  const Kernels* kernels = FindKernels(rows, kv.head_dim);
  if (kernels == nullptr) return "none";
  return UsesLong(*kernels, target) ? fmt::format("FA2, FA3 from {} rows on", kLongRows) : "FA2";
}

size_t PrefillAttention::StagedBytes(const AttentionCapacity& capacity, DType rows) {
  return static_cast<size_t>(StagedBlocks(capacity)) * NumbersOf(capacity.kv, rows).BlockBytes();
}

PrefillAttention::PrefillAttention(const AttentionCapacity& capacity, DType rows, const PrefillShape& shape)
    : capacity_(capacity), rows_(rows), shape_(shape), staged_blocks_(StagedBlocks(capacity)) {}

Result<std::unique_ptr<PrefillAttention>> PrefillAttention::Create(Device* device,
                                                                   const AttentionCapacity& capacity,
                                                                   DType rows, const CudaTarget& target,
                                                                   bool long_kernel) {
  const KvShape& kv = capacity.kv;
  TANDEM_CHECK(
      Supports(kv, rows, capacity.num_heads, target),
      "prefill attention: {}, rows of {}, {} heads ({} kv) of {}, blocks of {}, compute capability {}",
      KvFormatName(kv.format), DTypeName(rows), capacity.num_heads, kv.num_kv_heads, kv.head_dim,
      kv.block_size, target.compute_capability);
  PrefillShape shape = ShapeOf(kv, rows, capacity.num_heads, target);
  if (!long_kernel) shape.long_rows = 0;
  auto plan = std::unique_ptr<PrefillAttention>(new PrefillAttention(capacity, rows, shape));
  const int64_t staged_blocks = plan->staged_blocks_;
  // Two passes that follow each other have more blocks than there is room for.
  const int64_t max_passes =
      staged_blocks == 0
          ? 1
          : std::min(capacity.max_sequences, 2 * DivideUp(capacity.max_blocks, staged_blocks) + 1);
  const auto int_bytes =
      static_cast<size_t>(MaxPrefillPlanInts(shape, capacity, max_passes) + staged_blocks) * sizeof(int32_t);
  const auto partial_heads = static_cast<size_t>(MaxPartialHeads(shape));
  TANDEM_ASSIGN_OR_RETURN(plan->staging_,
                          StagingPair::Allocate(device, int_bytes, "the plan of prefill attention"));
  TANDEM_ASSIGN_OR_RETURN(plan->ints_,
                          device->Allocate(int_bytes, MemoryKind::kDevice, "the plan of prefill attention"));
  TANDEM_ASSIGN_OR_RETURN(plan->partial_,
                          device->Allocate(partial_heads * static_cast<size_t>(kv.head_dim) * DTypeSize(rows),
                                           MemoryKind::kDevice, "partial results of prefill attention"));
  TANDEM_ASSIGN_OR_RETURN(plan->log_sum_exp_,
                          device->Allocate(partial_heads * sizeof(float), MemoryKind::kDevice,
                                           "partial results of prefill attention"));
  if (staged_blocks > 0) {
    TANDEM_ASSIGN_OR_RETURN(plan->staged_, device->Allocate(StagedBytes(capacity, rows), MemoryKind::kDevice,
                                                            "numbers of codes for prefill attention"));
  }
  return plan;
}

std::vector<PrefillAttention::Pass> PrefillAttention::CutIntoPasses(
    std::span<const AttentionSequence> sequences) const {
  std::vector<Pass> passes;
  for (const AttentionSequence& sequence : sequences) {
    const int64_t num_blocks = DivideUp(sequence.context_len, capacity_.kv.block_size);
    const bool fits =
        staged_blocks_ == 0 || (!passes.empty() && passes.back().num_blocks + num_blocks <= staged_blocks_);
    if (passes.empty() || !fits) passes.emplace_back();
    TANDEM_CHECK(staged_blocks_ == 0 || num_blocks <= staged_blocks_,
                 "prefill plan: a context of {} blocks, room for the numbers of {}", num_blocks,
                 staged_blocks_);
    passes.back().num_blocks += num_blocks;
    ++passes.back().num_sequences;
  }
  return passes;
}

void PrefillAttention::Plan(CudaStream& stream, std::span<const AttentionSequence> sequences,
                            const KvShape& kv, int64_t num_heads, int64_t sliding_window) {
  TANDEM_CHECK(kv == capacity_.kv && num_heads == capacity_.num_heads && sliding_window >= 0 &&
                   sliding_window <= std::numeric_limits<int32_t>::max() / 2,
               "prefill plan: {}, {} heads ({} kv) of {}, window {}", KvFormatName(kv.format), num_heads,
               kv.num_kv_heads, kv.head_dim, sliding_window);
  TANDEM_CHECK(static_cast<int64_t>(sequences.size()) <= capacity_.max_sequences,
               "prefill plan: {} sequences, room for {}", sequences.size(), capacity_.max_sequences);
  shape_.sliding_window = sliding_window;
  passes_ = CutIntoPasses(sequences);
  int32_t* const data = staging_.Next();
  const std::span<int32_t> ints(data, ints_.size_bytes() / sizeof(int32_t));
  int64_t num_ints = 0;
  int64_t num_rows = 0;
  int64_t most_blocks = 0;
  size_t first = 0;
  for (Pass& pass : passes_) {
    pass.ints_begin = num_ints;
    pass.plan = PlanPrefill(shape_, sequences.subspan(first, static_cast<size_t>(pass.num_sequences)),
                            ints.subspan(static_cast<size_t>(num_ints)));
    first += static_cast<size_t>(pass.num_sequences);
    num_ints += pass.plan.num_ints;
    num_rows += pass.plan.num_rows;
    most_blocks = std::max(most_blocks, pass.num_blocks);
    TANDEM_CHECK(static_cast<size_t>(pass.plan.num_partial_rows * num_heads) * sizeof(float) <=
                     log_sum_exp_.size_bytes(),
                 "prefill plan: {} partial rows", pass.plan.num_partial_rows);
  }
  TANDEM_CHECK(num_rows <= capacity_.max_rows, "prefill plan: {} rows, room for {}", num_rows,
               capacity_.max_rows);
  if (staged_blocks_ > 0) {
    // The numbers of a pass lie block after block.
    staged_table_ = num_ints;
    const std::span<int32_t> table =
        ints.subspan(static_cast<size_t>(num_ints), static_cast<size_t>(most_blocks));
    std::iota(table.begin(), table.end(), 0);
    num_ints += most_blocks;
  }
  stream.Copy(ints_.data(), data, static_cast<size_t>(num_ints) * sizeof(int32_t));
}

void PrefillAttention::CheckArgs(const AttentionArgs& args) const {
  const KvShape& kv = args.kv.shape;
  TANDEM_CHECK(kv == capacity_.kv && args.kv.heads_per_part == 0 && args.num_heads == capacity_.num_heads &&
                   args.sliding_window == shape_.sliding_window,
               "prefill attention: not what was planned: {}, {} heads ({} kv) of {}, window {}",
               KvFormatName(kv.format), args.num_heads, kv.num_kv_heads, kv.head_dim, args.sliding_window);
  const int64_t first_row = passes_.empty() ? 0 : passes_.front().plan.first_row;
  const int64_t end_row = passes_.empty() ? 0 : passes_.back().plan.first_row + passes_.back().plan.num_rows;
  const int64_t cols = args.num_heads * kv.head_dim;
  TANDEM_CHECK(
      args.q.dtype == rows_ && args.out.dtype == rows_ && args.q.cols == cols && args.out.cols == cols &&
          args.q.rows >= end_row && args.out.rows >= end_row && args.q.row_stride >= cols &&
          args.out.row_stride == cols,
      "prefill attention: q {} [{}, {}] stride {}, out {} [{}, {}] stride {}, {} heads of {}, {} rows",
      DTypeName(args.q.dtype), args.q.rows, args.q.cols, args.q.row_stride, DTypeName(args.out.dtype),
      args.out.rows, args.out.cols, args.out.row_stride, args.num_heads, kv.head_dim, end_row);
  TANDEM_CHECK(
      Aligned(args.q.data) && args.q.row_stride % 8 == 0 && Aligned(args.out.data) && Aligned(args.kv.data),
      "prefill attention: q at {}, stride {}, out at {}, kv at {}", args.q.data, args.q.row_stride,
      args.out.data, args.kv.data);
  // The kernels count elements of q and out in 32 bits.
  TANDEM_CHECK((end_row - first_row) * args.q.row_stride <= std::numeric_limits<int32_t>::max(),
               "prefill attention: {} rows with stride {}", end_row - first_row, args.q.row_stride);
}

void PrefillAttention::Run(CudaStream& stream, const AttentionArgs& args) const {
  CheckArgs(args);
  for (const Pass& pass : passes_) RunPass(stream, args, pass);
}

void PrefillAttention::StageNumbers(CudaStream& stream, const AttentionArgs& args, const Pass& pass) const {
  // Small CTAs that wait for memory.
  constexpr int kCtasPerSm = 8;
  KvRecoding recoding;
  recoding.numbers = staged_.data();
  recoding.dtype = rows_;
  recoding.codes = args.kv.data;
  recoding.heads = CodedHeads::Of(args.kv);
  recoding.codes_are_listed = true;
  recoding.heads_per_part = recoding.heads.num_kv_heads;
  recoding.num_blocks = static_cast<int>(pass.num_blocks);
  recoding.device_blocks = ints_.as<int32_t>() + pass.ints_begin + pass.plan.block_table;
  LaunchCodesToNumbers(stream, recoding, kCtasPerSm * stream.target().num_sms);
}

void PrefillAttention::RunPass(CudaStream& stream, const AttentionArgs& args, const Pass& pass) const {
  const PrefillPlan& plan = pass.plan;
  const KvShape kv = NumbersOf(args.kv.shape, rows_);
  const Kernels& kernels = *FindKernels(rows_, kv.head_dim);
  const auto ints = [&](int64_t offset) { return ints_.as<int32_t>() + pass.ints_begin + offset; };
  void* out = args.out.RowData(plan.first_row);
  const bool coded = staged_blocks_ > 0;
  if (coded) StageNumbers(stream, args, pass);

  PrefillLaunch launch;
  launch.q = args.q.RowData(plan.first_row);
  launch.q_row_stride = args.q.row_stride;
  launch.k = coded ? staged_.data() : args.kv.data;
  launch.v = static_cast<const std::byte*>(launch.k) + kv.KeyBytes();
  launch.num_rows = static_cast<int32_t>(plan.num_rows);
  launch.num_heads = static_cast<int32_t>(args.num_heads);
  launch.num_kv_heads = static_cast<int32_t>(kv.num_kv_heads);
  launch.block_size = static_cast<int32_t>(kv.block_size);
  launch.num_sequences = static_cast<int32_t>(plan.num_sequences);
  launch.scale = args.scale;
  launch.window_left = static_cast<int32_t>(args.sliding_window) - 1;
  launch.row_indptr = ints(plan.row_indptr);
  launch.block_indptr = ints(plan.block_indptr);
  launch.block_table = coded ? ints_.as<int32_t>() + staged_table_ : ints(plan.block_table);
  launch.last_block_tokens = ints(plan.last_block_tokens);
  launch.context_len = ints(plan.context_len);

  if (plan.num_long_items > 0) {
    launch.out = out;
    launch.item_sequence = ints(plan.long_item_sequence);
    launch.item_tile = ints(plan.long_item_tile);
    launch.num_items = static_cast<int32_t>(plan.num_long_items);
    kernels.launch_long(stream, launch);
  }
  if (plan.num_items == 0) return;
  launch.out = plan.split ? partial_.data() : out;
  launch.log_sum_exp = log_sum_exp_.as<float>();
  launch.out_indptr = ints(plan.out_indptr);
  launch.item_sequence = ints(plan.item_sequence);
  launch.item_tile = ints(plan.item_tile);
  launch.item_chunk = ints(plan.item_chunk);
  launch.chunk_tokens = ints(plan.chunk_tokens);
  launch.num_items = static_cast<int32_t>(plan.num_items);
  launch.tile_rows = static_cast<int32_t>(plan.tile_rows);
  launch.split = plan.split;
  kernels.launch(stream, launch);
  if (plan.split) {
    MergePrefill(stream, {.dtype = rows_,
                          .partial = partial_.data(),
                          .log_sum_exp = log_sum_exp_.as<float>(),
                          .out = out,
                          .merge_row = ints(plan.merge_row),
                          .merge_indptr = ints(plan.merge_indptr),
                          .num_rows = plan.num_merged_rows,
                          .num_heads = args.num_heads,
                          .head_dim = kv.head_dim});
  }
}

}  // namespace tandem
