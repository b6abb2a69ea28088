#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kv_codes/append_codes.h"
#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxHeadDim = 256;

struct KernelAppend {
  int row_begin;
  int row_end;
  void* kv;
};

struct QkvPrepareKernelArgs {
  void* qkv;
  int64_t qkv_stride;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  const float* q_norm_weight;
  const float* k_norm_weight;
  float norm_eps;
  const float* rope_table;
  const int32_t* positions;
  const int32_t* slots;
  int num_append_rows;  // in all
  KernelAppend appends[2];
  int block_size;
};

// The cache that K and V of a row are appended to; nullptr: none.
__device__ __forceinline__ void* CacheOf(const QkvPrepareKernelArgs& args, int row) {
  for (const KernelAppend& append : args.appends) {
    if (row >= append.row_begin && row < append.row_end) return append.kv;
  }
  return nullptr;
}

// A group of lanes has one head of one row at a time and goes from head to head, so that the row's cosines
// and sines are read once. A lane holds kRuns runs of the head's first half and the same of its second half,
// which are what they are rotated with. Run i of lane l begins at element (l + i * group_lanes) * kWidth of a
// half. A CTA has kThreads / group_lanes groups; gridDim is (rows, parts): the groups of all parts share the
// heads of a row.
template <typename T, typename Cache, int kWidth, int kRuns>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 4 ? 4 : 6)
    QkvPrepareKernel(QkvPrepareKernelArgs args, int log_group_lanes) {
  AllowSuccessors();
  const int group_lanes = 1 << log_group_lanes;
  const int lane = static_cast<int>(threadIdx.x) & (group_lanes - 1);
  const int groups = kThreads >> log_group_lanes;
  const int half = args.head_dim / 2;
  const int num_rotated = args.num_heads + args.num_kv_heads;
  const int64_t row = blockIdx.x;
  void* const kv = CacheOf(args, static_cast<int>(row));
  const int num_heads = kv != nullptr ? num_rotated + args.num_kv_heads : num_rotated;
  T* qkv = static_cast<T*>(args.qkv) + row * args.qkv_stride;
  const int first_head = static_cast<int>(blockIdx.y) * groups;  // of the CTA
  int head = first_head + (static_cast<int>(threadIdx.x) >> log_group_lanes);
  const int head_step = groups * static_cast<int>(gridDim.y);

  Run<T, kWidth> next_first[kRuns];
  Run<T, kWidth> next_second[kRuns];
  const auto load_next = [&](int next_head) {
    const T* data = qkv + static_cast<int64_t>(next_head) * args.head_dim;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int at = (lane + i * group_lanes) * kWidth;
      if (next_head >= num_heads || at >= half) continue;
      next_first[i].Load(data + at);
      next_second[i].Load(data + half + at);
    }
  };

  // A round's loads are under way in the round before it; the first ones while the position, and with it the
  // cosines' place, is still awaited.
  WaitForPredecessors();
  const int position = args.positions[row];
  const int slot = kv != nullptr ? args.slots[row] : -1;
  load_next(head);
  float cos[kRuns][kWidth];
  float sin[kRuns][kWidth];
  const float* cos_sin = args.rope_table + static_cast<int64_t>(position) * args.head_dim;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int at = (lane + i * group_lanes) * kWidth;
    if (at >= half) continue;
    Run<float, kWidth> run;
    run.Load(cos_sin + at);
    run.Get(cos[i]);
    run.Load(cos_sin + half + at);
    run.Get(sin[i]);
  }
  int64_t cache_row = 0;  // element of head 0's K in the cache
  if (slot >= 0) {
    const int block = slot / args.block_size;
    const int offset = slot - block * args.block_size;
    cache_row =
        (static_cast<int64_t>(block) * args.num_kv_heads * 2 * args.block_size + offset) * args.head_dim;
  }

  // All lanes of a warp make the same number of rounds, so that they can exchange sums.
  for (int base = first_head; base < num_heads; base += head_step, head += head_step) {
    const bool exists = head < num_heads;
    const bool is_value = head >= num_rotated;
    const bool is_key = head >= args.num_heads && !is_value;
    T* data = qkv + static_cast<int64_t>(head) * args.head_dim;
    Run<T, kWidth> first[kRuns];
    Run<T, kWidth> second[kRuns];
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      first[i] = next_first[i];
      second[i] = next_second[i];
    }
    load_next(head + head_step);
    const float* norm_weight = is_value ? nullptr : is_key ? args.k_norm_weight : args.q_norm_weight;
    float factor = 1.0F;
    if (args.q_norm_weight != nullptr || args.k_norm_weight != nullptr) {
      float squares = 0.0F;
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        if (!exists || (lane + i * group_lanes) * kWidth >= half) continue;
        float a[kWidth];
        float b[kWidth];
        first[i].Get(a);
        second[i].Get(b);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) squares += a[j] * a[j] + b[j] * b[j];
      }
      for (int distance = group_lanes / 2; distance > 0; distance /= 2) {
        squares += __shfl_xor_sync(~0U, squares, distance);
      }
      factor = rsqrtf(squares / static_cast<float>(args.head_dim) + args.norm_eps);
    }
    if (!exists) continue;
    // [block][kv head][K or V][offset][element]
    const int kv_head = is_value ? head - num_rotated : head - args.num_heads;
    Cache* cache = static_cast<Cache*>(kv) + cache_row +
                   static_cast<int64_t>(2 * kv_head + (is_value ? 1 : 0)) * args.block_size * args.head_dim;
    const bool append = slot >= 0 && (is_key || is_value);
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int at = (lane + i * group_lanes) * kWidth;
      if (at >= half) continue;
      float a[kWidth];
      float b[kWidth];
      first[i].Get(a);
      second[i].Get(b);
      if (norm_weight != nullptr) {
        Run<float, kWidth> run;
        float weights[kWidth];
        run.Load(norm_weight + at);
        run.Get(weights);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) a[j] = weights[j] * (a[j] * factor);
        run.Load(norm_weight + half + at);
        run.Get(weights);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) b[j] = weights[j] * (b[j] * factor);
      }
      if (!is_value) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float rotated = a[j] * cos[i][j] - b[j] * sin[i][j];
          b[j] = b[j] * cos[i][j] + a[j] * sin[i][j];
          a[j] = rotated;
        }
        first[i].Set(a);
        second[i].Set(b);
        first[i].Store(data + at);
        second[i].Store(data + half + at);
      }
      if (append) {
        Run<Cache, kWidth> rounded;
        rounded.Set(a);
        rounded.Store(cache + at);
        rounded.Set(b);
        rounded.Store(cache + half + at);
      }
    }
  }
}

template <typename T, typename Cache>
void LaunchQkvPrepare(CudaStream& stream, const QkvPrepareKernelArgs& args, int64_t rows, bool wide) {
  const int half = args.head_dim / 2;
  int log_group_lanes = 5;
  if (wide) {
    log_group_lanes = 0;
    while ((8 << log_group_lanes) < half) ++log_group_lanes;
  }
  const int groups = kThreads >> log_group_lanes;
  const int num_heads = args.num_heads + (args.num_append_rows > 0 ? 2 : 1) * args.num_kv_heads;
  // Few rows: a head for each group; many: each group takes several heads of the row.
  const int64_t max_parts = (num_heads + groups - 1) / groups;
  const int64_t wanted_parts = 8 * static_cast<int64_t>(stream.target().num_sms) / rows + 1;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(std::min(wanted_parts, max_parts)));
  if (wide) {
    LaunchRowKernel<QkvPrepareKernel<T, Cache, 8, 1>>("qkv_prepare", grid, kThreads, stream, args,
                                                      log_group_lanes);
  } else {
    LaunchRowKernel<QkvPrepareKernel<T, Cache, 1, 4>>("qkv_prepare", grid, kThreads, stream, args,
                                                      log_group_lanes);
  }
}

void CheckQkvPrepare(const QkvPrepareArgs& args) {
  TANDEM_CHECK(args.num_heads > 0 && args.num_kv_heads > 0 && args.head_dim > 0 && args.head_dim % 2 == 0 &&
                   args.head_dim <= kMaxHeadDim &&
                   args.qkv.cols == (args.num_heads + 2 * args.num_kv_heads) * args.head_dim &&
                   IsFloatType(args.qkv.dtype),
               "qkv_prepare: qkv [{}, {}] {}, {} heads, {} kv heads of {}", args.qkv.rows, args.qkv.cols,
               DTypeName(args.qkv.dtype), args.num_heads, args.num_kv_heads, args.head_dim);
  TANDEM_CHECK(args.rope_table != nullptr && args.positions != nullptr, "qkv_prepare: no positions");
  CheckAppends(args);
  for (const KvRows& append : args.appends) {
    if (append.num_rows == 0) continue;
    const KvShape& shape = append.kv.shape;
    TANDEM_CHECK(shape.block_size > 0 &&
                     (append.kv.heads_per_part == 0 || append.kv.heads_per_part == shape.num_kv_heads),
                 "qkv_prepare: blocks of {}, {} of {} heads a part", shape.block_size,
                 append.kv.heads_per_part, shape.num_kv_heads);
    if (shape.format.is_coded()) continue;
    const DType cache = shape.plain_dtype();
    TANDEM_CHECK(IsFloatType(cache) && (args.qkv.dtype == DType::kF32 || args.qkv.dtype == cache),
                 "qkv_prepare: qkv {}, cache {}", DTypeName(args.qkv.dtype), DTypeName(cache));
  }
}

bool AppendsCodes(const QkvPrepareArgs& args) {
  return std::any_of(args.appends.begin(), args.appends.end(), [](const KvRows& append) {
    return append.num_rows > 0 && append.kv.shape.format.is_coded();
  });
}

}  // namespace

// K and V become codes in a kernel of their own: a code takes the whole head, and a head lies in another way
// here.
void CudaOps::QkvPrepare(Stream& stream, const QkvPrepareArgs& args) {
  CheckQkvPrepare(args);
  if (args.qkv.rows == 0) return;
  if (AppendsCodes(args)) {
    QkvPrepareArgs without_appends = args;
    without_appends.appends = {};
    QkvPrepare(stream, without_appends);
    AppendCodes(AsCudaStream(stream), args);
    return;
  }
  QkvPrepareKernelArgs kernel_args = {
      .qkv = args.qkv.data,
      .qkv_stride = args.qkv.row_stride,
      .num_heads = static_cast<int>(args.num_heads),
      .num_kv_heads = static_cast<int>(args.num_kv_heads),
      .head_dim = static_cast<int>(args.head_dim),
      .q_norm_weight = args.q_norm_weight,
      .k_norm_weight = args.k_norm_weight,
      .norm_eps = args.norm_eps,
      .rope_table = args.rope_table,
      .positions = args.positions,
      .slots = args.slots,
      .num_append_rows = 0,
      .appends = {},
      .block_size = 0,
  };
  DType cache_dtype = args.qkv.dtype;
  bool caches_aligned = true;
  for (size_t i = 0; i < args.appends.size(); ++i) {
    const KvRows& append = args.appends[i];
    if (append.num_rows == 0) continue;
    kernel_args.appends[i] = {.row_begin = static_cast<int>(append.row_begin),
                              .row_end = static_cast<int>(append.row_begin + append.num_rows),
                              .kv = append.kv.data};
    kernel_args.num_append_rows += static_cast<int>(append.num_rows);
    kernel_args.block_size = static_cast<int>(append.kv.shape.block_size);
    cache_dtype = append.kv.shape.plain_dtype();
    caches_aligned = caches_aligned && IsAligned16(append.kv.data);
  }
  const bool wide = args.head_dim % 16 == 0 && RowsAligned16(args.qkv) && IsAligned16(args.rope_table) &&
                    caches_aligned && IsAligned16(args.q_norm_weight) && IsAligned16(args.k_norm_weight);
  WithElementTypes</*kFromF32=*/true, /*kToF32=*/false>(
      args.qkv.dtype, cache_dtype, [&](auto type, auto cache_type) {
        LaunchQkvPrepare<typename decltype(type)::Type, typename decltype(cache_type)::Type>(
            AsCudaStream(stream), kernel_args, args.qkv.rows, wide);
      });
}

}  // namespace tandem
