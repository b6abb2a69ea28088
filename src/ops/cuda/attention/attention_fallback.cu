#include <cstdint>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/attention/attention_fallback.h"
#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/kv_codes/coded_heads.h"
#include "ops/cuda/row_access.h"

namespace tandem {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxHeadDim = 256;
constexpr int kCtasPerSm = 8;
constexpr unsigned kAllLanes = 0xffffffffU;

struct FallbackParams {
  const int32_t* plan;
  const void* q;
  void* out;
  const void* kv;
  int64_t q_stride;
  int64_t out_stride;
  int32_t sequences;  // begin at this word of the plan
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
  int32_t window;
  float scale;
  CodedHeads coded;  // of a cache of codes
  bool q_is_f32;
  bool out_is_f32;
  FallbackRows rows;
};

// The product of 8 elements, which lie at a multiple of 16 bytes.
template <typename T>
__device__ float Dot8(const float* q, const T* k) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  float sum = 0.0F;
#pragma unroll
  for (int begin = 0; begin < 8; begin += kElements) {
    const uint4 piece = *reinterpret_cast<const uint4*>(k + begin);
    const T* values = reinterpret_cast<const T*>(&piece);
#pragma unroll
    for (int i = 0; i < kElements; ++i) sum += q[begin + i] * ToFloat(values[i]);
  }
  return sum;
}

// K and V of one token and kv head, read by one lane; v stands for V in exchanges between lanes. Numbers of
// type T, [block][kv head]{K, V} row-major.
template <typename T>
struct NumbersOfToken {
  const T* k = nullptr;
  int64_t v = 0;

  static __device__ void PrepareQuery(const FallbackParams& /*params*/, float* /*q*/, int /*lane*/) {}

  __device__ NumbersOfToken(const FallbackParams& params, int block, int kv_head, int token) {
    const int64_t part_elements = static_cast<int64_t>(params.block_size) * params.head_dim;
    k = static_cast<const T*>(params.kv) +
        (static_cast<int64_t>(block) * params.num_kv_heads + kv_head) * 2 * part_elements +
        static_cast<int64_t>(token) * params.head_dim;
    v = reinterpret_cast<int64_t>(k + part_elements);
  }
  __device__ float Score(const FallbackParams& params, const float* q) const {
    float score = 0.0F;
    for (int d = 0; d < params.head_dim; d += 8) score += Dot8(q + d, k + d);
    return score;
  }
  __device__ float ValueScale() const { return 1.0F; }
  static __device__ float Value(const FallbackParams& /*params*/, int64_t v, int d) {
    return ToFloat(reinterpret_cast<const T*>(v)[d]);
  }
};

// Codes in the order of cpu_attention/kv_block.h, where a number's place is the sum of its
// token's and its element's.
struct CodesOfToken {
  const uint8_t* k = nullptr;
  int64_t v = 0;
  float key_scale = 0;
  float value_scale = 0;

  // K is rotated, and so q has to be. The whole warp, q in shared memory.
  static __device__ void PrepareQuery(const FallbackParams& params, float* q, int lane) {
    const int head_dim = params.head_dim;
    for (int distance = 1; distance < params.coded.rotation_size; distance *= 2) {
      for (int pair = lane; pair < head_dim / 2; pair += 32) {
        float* first = q + pair / distance * 2 * distance + pair % distance;
        const float sum = first[0] + first[distance];
        first[distance] = first[0] - first[distance];
        first[0] = sum;
      }
      __syncwarp();
    }
    for (int d = lane; d < head_dim; d += 32) q[d] *= params.coded.rotation_factor;
    __syncwarp();
  }

  __device__ CodesOfToken(const FallbackParams& params, int block, int kv_head, int token) {
    const CodedHeads& heads = params.coded;
    const int tile_token = token % heads.tile_tokens;
    const uint8_t* head = static_cast<const uint8_t*>(params.kv) +
                          (static_cast<int64_t>(block) * params.num_kv_heads + kv_head) * heads.head_bytes;
    const uint8_t* keys = head + heads.TileBegin(token / heads.tile_tokens, false);
    const uint8_t* values = head + heads.TileBegin(token / heads.tile_tokens, true);
    k = keys + CodedKeyIndex(heads.tile_tokens, tile_token, 0);
    v = reinterpret_cast<int64_t>(values + CodedValueIndex(heads.tile_tokens, tile_token, 0));
    const auto scale_of = [&](const uint8_t* tile) {
      return ToFloat(*reinterpret_cast<const Bf16*>(
          tile + CodedScaleIndex(heads.tile_tokens, heads.head_dim, tile_token)));
    };
    key_scale = scale_of(keys);
    value_scale = scale_of(values);
  }
  __device__ float Score(const FallbackParams& params, const float* q) const {
    float score = 0.0F;
    for (int d = 0; d < params.head_dim; d += 4) {
      const auto word = *reinterpret_cast<const uint32_t*>(k + CodedKeyIndex(params.coded.tile_tokens, 0, d));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score += q[d + i] * NumberOf(params.coded.code, true, static_cast<uint8_t>(word >> (8 * i)));
      }
    }
    return score * key_scale;
  }
  __device__ float ValueScale() const {
    return value_scale;
  }
  static __device__ float Value(const FallbackParams& params, int64_t v, int d) {
    return NumberOf(params.coded.code, false,
                    reinterpret_cast<const uint8_t*>(v)[CodedValueIndex(params.coded.tile_tokens, 0, d)]);
  }
};

// The sequence that row is of, counted from the first sequence's first row.
__device__ int SequenceOfRow(const AttentionPlanSequence* sequences, int count, int row) {
  int low = 0;
  int high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (__ldcg(&sequences[middle].rows_before) <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// A warp takes one query head of one row. For 32 tokens at a time, each lane has one token's score and then
// every 32nd element of the output. T: of q and out where they are not fp32. Token: NumbersOfToken<T>, or
// another with its members.
template <typename T, typename Token>
__global__ void __launch_bounds__(kWarps * 32) AttentionFallbackKernel(const FallbackParams params) {
  __shared__ float all_q[kWarps][kMaxHeadDim];
  AllowSuccessors();
  WaitForPredecessors();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  float* q = all_q[warp];
  const int head_dim = params.head_dim;
  const auto* header = reinterpret_cast<const PlanHeader*>(params.plan);
  const auto* sequences = reinterpret_cast<const AttentionPlanSequence*>(params.plan + params.sequences);
  const int num_sequences = __ldcg(&header->num_sequences);
  // A decode has one row.
  const int num_decodes = __ldcg(&header->num_decodes);
  const int first_row = params.rows.decodes ? 0 : num_decodes;
  const int end_row = params.rows.prefills ? __ldcg(&header->num_rows) : num_decodes;
  const int64_t num_items = static_cast<int64_t>(end_row - first_row) * params.num_heads;

  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + warp; item < num_items;
       item += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int row_in_batch = first_row + static_cast<int>(item / params.num_heads);
    const int head = static_cast<int>(item % params.num_heads);
    const int kv_head = head / (params.num_heads / params.num_kv_heads);
    const AttentionPlanSequence& sequence = sequences[SequenceOfRow(sequences, num_sequences, row_in_batch)];
    const int row_in_sequence = row_in_batch - __ldcg(&sequence.rows_before);
    const int64_t row = __ldcg(&sequence.row_begin) + row_in_sequence;
    const int visible = __ldcg(&sequence.context_len) - __ldcg(&sequence.num_rows) + row_in_sequence + 1;
    const int first = FirstVisibleToken(visible, params.window);
    const int32_t* table = params.plan + __ldcg(&sequence.table_begin);

    const int64_t q_begin = row * params.q_stride + static_cast<int64_t>(head) * head_dim;
    for (int d = lane; d < head_dim; d += 32) {
      const float value = params.q_is_f32 ? __ldcg(static_cast<const float*>(params.q) + q_begin + d)
                                          : ToFloat(__ldcg(static_cast<const T*>(params.q) + q_begin + d));
      q[d] = value * params.scale;
    }
    __syncwarp();
    Token::PrepareQuery(params, q, lane);

    float max = -__builtin_huge_valf();
    float sum = 0.0F;
    float out[kMaxHeadDim / 32] = {};
    for (int begin = first; begin < visible; begin += 32) {
      const int count = min(32, visible - begin);
      const int position = begin + min(lane, count - 1);
      const Token token(params, __ldcg(table + position / params.block_size), kv_head,
                        position % params.block_size);
      float score = token.Score(params, q);
      if (lane >= count) score = -__builtin_huge_valf();
      float new_max = score;
      for (int offset = 16; offset > 0; offset /= 2) {
        new_max = fmaxf(new_max, __shfl_xor_sync(kAllLanes, new_max, offset));
      }
      new_max = fmaxf(new_max, max);
      const float scale = expf(max - new_max);
      max = new_max;
      const float weight = lane < count ? expf(score - max) : 0.0F;
      sum = sum * scale + weight;
#pragma unroll
      for (float& value : out) value *= scale;
      const float scaled_weight = weight * token.ValueScale();
      for (int i = 0; i < count; ++i) {
        const float p = __shfl_sync(kAllLanes, scaled_weight, i);
        const int64_t v = __shfl_sync(kAllLanes, token.v, i);
#pragma unroll
        for (int j = 0; j < kMaxHeadDim / 32; ++j) {
          const int d = lane + j * 32;
          if (d < head_dim) out[j] += p * Token::Value(params, v, d);
        }
      }
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
    const int64_t out_begin = row * params.out_stride + static_cast<int64_t>(head) * head_dim;
#pragma unroll
    for (int j = 0; j < kMaxHeadDim / 32; ++j) {
      const int d = lane + j * 32;
      if (d >= head_dim) continue;
      if (params.out_is_f32) {
        static_cast<float*>(params.out)[out_begin + d] = out[j] / sum;
      } else {
        static_cast<T*>(params.out)[out_begin + d] = RoundTo<T>(out[j] / sum);
      }
    }
    __syncwarp();
  }
}

template <typename T, typename Token>
void Launch(CudaStream& stream, const FallbackParams& params) {
  LaunchKernel("attention", AttentionFallbackKernel<T, Token>,
               dim3(static_cast<unsigned>(stream.target().num_sms * kCtasPerSm)), dim3(kWarps * 32), 0,
               stream, params);
}

}  // namespace

bool AttentionFallbackSupports(const KvShape& kv, int64_t num_heads) {
  const bool coded = IsCoded(kv);
  const int64_t unit = coded ? 16 : 8;
  return (coded || IsFloatType(kv.plain_dtype())) && kv.head_dim >= unit && kv.head_dim <= kMaxHeadDim &&
         kv.head_dim % unit == 0 && kv.block_size >= 1 && (!coded || kv.block_size % 16 == 0) &&
         kv.num_kv_heads >= 1 && num_heads >= 1 && num_heads % kv.num_kv_heads == 0;
}

void AttentionFallback(CudaStream& stream, const AttentionArgs& args, const int32_t* plan, int num_ctas,
                       FallbackRows rows) {
  const KvShape& kv = args.kv.shape;
  TANDEM_CHECK(AttentionFallbackSupports(kv, args.num_heads), "attention: {} heads, {} kv heads of {} ({})",
               args.num_heads, kv.num_kv_heads, kv.head_dim, KvFormatName(kv.format));
  TANDEM_CHECK(reinterpret_cast<uintptr_t>(args.kv.data) % 16 == 0, "attention: cache at {}", args.kv.data);
  const PlanOffsets offsets{num_ctas};
  FallbackParams params = {};
  params.plan = plan;
  params.q = args.q.data;
  params.out = args.out.data;
  params.kv = args.kv.data;
  params.q_stride = args.q.row_stride;
  params.out_stride = args.out.row_stride;
  params.sequences = offsets.sequences();
  params.num_heads = static_cast<int32_t>(args.num_heads);
  params.num_kv_heads = static_cast<int32_t>(kv.num_kv_heads);
  params.head_dim = static_cast<int32_t>(kv.head_dim);
  params.block_size = static_cast<int32_t>(kv.block_size);
  params.window = static_cast<int32_t>(args.sliding_window);
  params.scale = args.scale;
  params.q_is_f32 = args.q.dtype == DType::kF32;
  params.out_is_f32 = args.out.dtype == DType::kF32;
  params.rows = rows;
  if (IsCoded(kv)) {
    params.coded = CodedHeads::Of(args.kv);
    const DType rows = args.q.dtype == DType::kF32 ? args.out.dtype : args.q.dtype;
    WithElementType(rows,
                    [&](auto type) { Launch<typename decltype(type)::Type, CodesOfToken>(stream, params); });
    return;
  }
  WithElementType(kv.plain_dtype(), [&](auto type) {
    using T = typename decltype(type)::Type;
    Launch<T, NumbersOfToken<T>>(stream, params);
  });
}

}  // namespace tandem
