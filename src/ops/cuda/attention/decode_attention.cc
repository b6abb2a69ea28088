#include "ops/cuda/attention/decode_attention.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/kv_codes/coded_heads.h"

namespace tandem {
namespace {

constexpr float kLog2E = 1.44269504088896340736F;
// Rows of q are read in words of 4 bytes, with codes of 8, rows of out are written in pieces of 8.
constexpr uintptr_t kQAlignment = 4;
constexpr uintptr_t kQAlignmentCoded = 8;
constexpr uintptr_t kOutAlignment = 8;

size_t SlotBytes(const KvShape& kv, int64_t group) {
  return sizeof(float) *
         static_cast<size_t>(DecodeSlotFloats(static_cast<int>(kv.head_dim), static_cast<int>(group)));
}

size_t WarpBytes(const KvShape& kv, int64_t group) {
  const int head_dim = static_cast<int>(kv.head_dim);
  const bool coded = IsCoded(kv);
  return static_cast<size_t>(DecodeStages(head_dim, coded) * DecodePartBytes(head_dim, coded)) +
         SlotBytes(kv, group);
}

// What stands in shared memory beside the warps' parts: kinds of the partial results, two flags.
constexpr size_t CtaBytes(size_t num_warps) {
  return num_warps * 2 * 16 + 16;
}

bool Aligned(const void* data, int64_t row_stride, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0 &&
         static_cast<uintptr_t>(row_stride) * 2 % bytes == 0;
}

// Of GPUs before 8.0: tiles in registers.
bool IsDirect(const CudaTarget& target) {
  return target.compute_capability < 80;
}

void Dispatch(CudaStream* stream, const KvShape& kv, DType rows, int64_t group, const DecodeLaunch& launch,
              const DecodeAttentionParams* params) {
  const bool bf16 = rows == DType::kBF16;
  const bool direct = launch.is_direct;  // then fp16
  const auto plain = direct ? LaunchDirectDecodeAttentionFp16
                     : bf16 ? LaunchDecodeAttentionBf16
                            : LaunchDecodeAttentionFp16;
  const auto int8 = direct ? LaunchDirectDecodeAttentionInt8Fp16
                    : bf16 ? LaunchDecodeAttentionInt8Bf16
                           : LaunchDecodeAttentionInt8Fp16;
  const auto fp8 = direct ? LaunchDirectDecodeAttentionFp8Fp16
                   : bf16 ? LaunchDecodeAttentionFp8Bf16
                          : LaunchDecodeAttentionFp8Fp16;
  const auto run = !IsCoded(kv) ? plain : KvCodeOf(kv.format) == KvCode::kE4M3 ? fp8 : int8;
  run(stream, static_cast<int>(kv.head_dim), launch, params, static_cast<int>(group));
}

}  // namespace

bool DecodeAttentionSupports(const KvShape& kv, DType rows, int64_t num_heads, const CudaTarget& target) {
  if (target.compute_capability < 75 || kv.block_size != kDecodeTileTokens || kv.num_kv_heads < 1)
    return false;
  if (IsDirect(target) && (rows != DType::kF16 || kv.head_dim == 256)) return false;
  if (rows != DType::kBF16 && rows != DType::kF16) return false;
  if (!IsCoded(kv) && kv.format != KvFormat::Plain(rows)) return false;
  if (num_heads < 1 || num_heads % kv.num_kv_heads != 0) return false;
  const int64_t group = num_heads / kv.num_kv_heads;
  if (kv.head_dim == 64 || kv.head_dim == 128) return group <= 2 * kDecodeHeadTile;
  return kv.head_dim == 256 && group <= kDecodeHeadTile;
}

DecodeLaunch PlanDecodeLaunch(const KvShape& kv, int64_t num_heads, const CudaTarget& target) {
  const int64_t group = num_heads / kv.num_kv_heads;
  const bool is_direct = IsDirect(target);
  const size_t warp_bytes = is_direct ? SlotBytes(kv, group) : WarpBytes(kv, group);
  const auto available = static_cast<size_t>(target.max_shared_bytes_per_block);
  const int head_tiles = group > kDecodeHeadTile ? 2 : 1;
  const auto head_dim = static_cast<int>(kv.head_dim);
  const auto max_warps = static_cast<size_t>(is_direct ? DirectDecodeMaxWarps(head_dim, head_tiles)
                                                       : DecodeMaxWarps(head_dim, head_tiles, IsCoded(kv)));
  const size_t cta_bytes = CtaBytes(max_warps) + (is_direct ? SlotBytes(kv, group) : 0);
  TANDEM_CHECK(available >= warp_bytes + cta_bytes, "decode attention: {} bytes of shared memory a block",
               available);
  DecodeLaunch launch;
  launch.is_direct = is_direct;
  launch.num_ctas = target.num_sms;
  launch.num_warps = static_cast<int>(std::min(max_warps, (available - cta_bytes) / warp_bytes));
  launch.shared_bytes = static_cast<size_t>(launch.num_warps) * warp_bytes + cta_bytes;
  launch.partial_bytes =
      sizeof(float) * 2 * static_cast<size_t>(launch.num_ctas) *
      static_cast<size_t>(DecodePartialFloats(static_cast<int>(kv.head_dim), static_cast<int>(group)));
  launch.counter_bytes = sizeof(int32_t) * static_cast<size_t>(launch.num_ctas);
  return launch;
}

void PrepareDecodeAttention(const KvShape& kv, DType rows, int64_t num_heads, const DecodeLaunch& launch) {
  Dispatch(nullptr, kv, rows, num_heads / kv.num_kv_heads, launch, nullptr);
}

void DecodeAttention(CudaStream& stream, const AttentionArgs& args, const DecodeLaunch& launch,
                     const int32_t* plan, void* partials, void* counters) {
  const KvShape& kv = args.kv.shape;
  const DType rows = args.q.dtype;
  TANDEM_CHECK(args.out.dtype == rows && (IsCoded(kv) || kv.format == KvFormat::Plain(rows)),
               "decode attention: q {}, out {}, cache {}", DTypeName(rows), DTypeName(args.out.dtype),
               KvFormatName(kv.format));
  TANDEM_CHECK(Aligned(args.q.data, args.q.row_stride, IsCoded(kv) ? kQAlignmentCoded : kQAlignment) &&
                   Aligned(args.out.data, args.out.row_stride, kOutAlignment) &&
                   reinterpret_cast<uintptr_t>(args.kv.data) % 16 == 0,
               "decode attention: q at {} with rows of {}, out at {} with rows of {}, cache at {}",
               args.q.data, args.q.row_stride, args.out.data, args.out.row_stride, args.kv.data);
  TANDEM_CHECK(args.scale > 0, "decode attention: scale {}", args.scale);
  DecodeAttentionParams params = {};
  params.plan = plan;
  params.q = args.q.data;
  params.out = args.out.data;
  params.kv = args.kv.data;
  params.q_stride = args.q.row_stride;
  params.out_stride = args.out.row_stride;
  params.num_kv_heads = static_cast<int32_t>(kv.num_kv_heads);
  params.group = static_cast<int32_t>(args.num_heads / kv.num_kv_heads);
  params.window = static_cast<int32_t>(args.sliding_window);
  params.scale_log2 = args.scale * kLog2E;
  params.partials = static_cast<float*>(partials);
  params.counters = static_cast<int32_t*>(counters);
  Dispatch(&stream, kv, rows, params.group, launch, &params);
}

}  // namespace tandem
