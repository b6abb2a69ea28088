#include "ops/cuda/attention/prefill_attention.h"

#include <limits>
#include <utility>

#include "base/check.h"
#include "ops/cuda/attention/prefill_kernels.h"
#include "ops/cuda/attention/prefill_merge.h"

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

const Kernels* FindKernels(const KvShape& kv) {
  const DType cache = kv.plain_dtype();
  for (const Kernels& kernels : kKernels) {
    if (kernels.dtype == cache && kernels.head_dim == kv.head_dim) return &kernels;
  }
  return nullptr;
}

bool UsesLong(const Kernels& kernels, const CudaTarget& target) {
  return kernels.launch_long != nullptr && target.compute_capability == 90;
}

PrefillShape ShapeOf(const KvShape& kv, int64_t num_heads, const CudaTarget& target) {
  const Kernels& kernels = *FindKernels(kv);
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

bool PrefillAttention::Supports(const KvShape& kv, int64_t num_heads, const CudaTarget& target) {
  return FindKernels(kv) != nullptr && kv.block_size == 32 && kv.num_kv_heads > 0 && num_heads > 0 &&
         num_heads % kv.num_kv_heads == 0 &&
         target.compute_capability >= (kv.plain_dtype() == DType::kBF16 ? 80 : 75);
}

std::string PrefillAttention::Description(const KvShape& kv, const CudaTarget& target) {
  const Kernels* kernels = FindKernels(kv);
  if (kernels == nullptr) return "none";
  return UsesLong(*kernels, target) ? fmt::format("FA2, FA3 from {} rows on", kLongRows) : "FA2";
}

PrefillAttention::PrefillAttention(const AttentionCapacity& capacity, const PrefillShape& shape)
    : capacity_(capacity), shape_(shape) {}

Result<std::unique_ptr<PrefillAttention>> PrefillAttention::Create(Device* device,
                                                                   const AttentionCapacity& capacity,
                                                                   const CudaTarget& target,
                                                                   bool long_kernel) {
  TANDEM_CHECK(Supports(capacity.kv, capacity.num_heads, target),
               "prefill attention: {}, {} heads ({} kv) of {}, blocks of {}, compute capability {}",
               KvFormatName(capacity.kv.format), capacity.num_heads, capacity.kv.num_kv_heads,
               capacity.kv.head_dim, capacity.kv.block_size, target.compute_capability);
  PrefillShape shape = ShapeOf(capacity.kv, capacity.num_heads, target);
  if (!long_kernel) shape.long_rows = 0;
  auto plan = std::unique_ptr<PrefillAttention>(new PrefillAttention(capacity, shape));
  const auto int_bytes = static_cast<size_t>(MaxPrefillPlanInts(shape, capacity)) * sizeof(int32_t);
  const auto partial_heads = static_cast<size_t>(MaxPartialHeads(shape));
  TANDEM_ASSIGN_OR_RETURN(plan->staging_,
                          StagingPair::Allocate(device, int_bytes, "the plan of prefill attention"));
  TANDEM_ASSIGN_OR_RETURN(plan->ints_,
                          device->Allocate(int_bytes, MemoryKind::kDevice, "the plan of prefill attention"));
  TANDEM_ASSIGN_OR_RETURN(plan->partial_,
                          device->Allocate(partial_heads * static_cast<size_t>(capacity.kv.head_dim) *
                                               DTypeSize(capacity.kv.plain_dtype()),
                                           MemoryKind::kDevice, "partial results of prefill attention"));
  TANDEM_ASSIGN_OR_RETURN(plan->log_sum_exp_,
                          device->Allocate(partial_heads * sizeof(float), MemoryKind::kDevice,
                                           "partial results of prefill attention"));
  return plan;
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
  int32_t* const ints = staging_.Next();
  plan_ = PlanPrefill(shape_, sequences, {ints, ints_.size_bytes() / sizeof(int32_t)});
  TANDEM_CHECK(plan_.num_rows <= capacity_.max_rows, "prefill plan: {} rows, room for {}", plan_.num_rows,
               capacity_.max_rows);
  TANDEM_CHECK(
      static_cast<size_t>(plan_.num_partial_rows * num_heads) * sizeof(float) <= log_sum_exp_.size_bytes(),
      "prefill plan: {} partial rows", plan_.num_partial_rows);
  stream.Copy(ints_.data(), ints, static_cast<size_t>(plan_.num_ints) * sizeof(int32_t));
}

void PrefillAttention::CheckArgs(const AttentionArgs& args) const {
  const KvShape& kv = args.kv.shape;
  TANDEM_CHECK(kv == capacity_.kv && args.kv.heads_per_part == 0 && args.num_heads == capacity_.num_heads &&
                   args.sliding_window == shape_.sliding_window,
               "prefill attention: not what was planned: {}, {} heads ({} kv) of {}, window {}",
               KvFormatName(kv.format), args.num_heads, kv.num_kv_heads, kv.head_dim, args.sliding_window);
  const int64_t end_row = plan_.first_row + plan_.num_rows;
  const int64_t cols = args.num_heads * kv.head_dim;
  const DType cache = kv.plain_dtype();
  TANDEM_CHECK(
      args.q.dtype == cache && args.out.dtype == cache && args.q.cols == cols && args.out.cols == cols &&
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
  TANDEM_CHECK(plan_.num_rows * args.q.row_stride <= std::numeric_limits<int32_t>::max(),
               "prefill attention: {} rows with stride {}", plan_.num_rows, args.q.row_stride);
}

void PrefillAttention::Run(CudaStream& stream, const AttentionArgs& args) const {
  CheckArgs(args);
  const KvShape& kv = args.kv.shape;
  const Kernels& kernels = *FindKernels(kv);
  const auto ints = [this](int64_t offset) { return ints_.as<int32_t>() + offset; };
  void* out = args.out.RowData(plan_.first_row);

  PrefillLaunch launch;
  launch.q = args.q.RowData(plan_.first_row);
  launch.q_row_stride = args.q.row_stride;
  launch.k = args.kv.data;
  launch.v = static_cast<const std::byte*>(args.kv.data) + kv.KeyBytes();
  launch.num_rows = static_cast<int32_t>(plan_.num_rows);
  launch.num_heads = static_cast<int32_t>(args.num_heads);
  launch.num_kv_heads = static_cast<int32_t>(kv.num_kv_heads);
  launch.block_size = static_cast<int32_t>(kv.block_size);
  launch.num_sequences = static_cast<int32_t>(plan_.num_sequences);
  launch.scale = args.scale;
  launch.window_left = static_cast<int32_t>(args.sliding_window) - 1;
  launch.row_indptr = ints(plan_.row_indptr);
  launch.block_indptr = ints(plan_.block_indptr);
  launch.block_table = ints(plan_.block_table);
  launch.last_block_tokens = ints(plan_.last_block_tokens);
  launch.context_len = ints(plan_.context_len);

  if (plan_.num_long_items > 0) {
    launch.out = out;
    launch.item_sequence = ints(plan_.long_item_sequence);
    launch.item_tile = ints(plan_.long_item_tile);
    launch.num_items = static_cast<int32_t>(plan_.num_long_items);
    kernels.launch_long(stream, launch);
  }
  if (plan_.num_items == 0) return;
  launch.out = plan_.split ? partial_.data() : out;
  launch.log_sum_exp = log_sum_exp_.as<float>();
  launch.out_indptr = ints(plan_.out_indptr);
  launch.item_sequence = ints(plan_.item_sequence);
  launch.item_tile = ints(plan_.item_tile);
  launch.item_chunk = ints(plan_.item_chunk);
  launch.chunk_tokens = ints(plan_.chunk_tokens);
  launch.num_items = static_cast<int32_t>(plan_.num_items);
  launch.tile_rows = static_cast<int32_t>(plan_.tile_rows);
  launch.split = plan_.split;
  kernels.launch(stream, launch);
  if (plan_.split) {
    MergePrefill(stream, {.dtype = kv.plain_dtype(),
                          .partial = partial_.data(),
                          .log_sum_exp = log_sum_exp_.as<float>(),
                          .out = out,
                          .merge_row = ints(plan_.merge_row),
                          .merge_indptr = ints(plan_.merge_indptr),
                          .num_rows = plan_.num_merged_rows,
                          .num_heads = args.num_heads,
                          .head_dim = kv.head_dim});
  }
}

}  // namespace tandem
