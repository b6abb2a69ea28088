#include <cstdint>

#include "ops/cuda/kv_codes/append_codes.h"
#include "ops/cuda/kv_codes/coded_heads.h"
#include "ops/cuda/kv_codes/warp_head.cuh"
#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"

namespace tandem {
namespace {

constexpr int kWarps = 4;

struct Append {
  int row_begin;
  int num_rows;
  uint8_t* codes;
};

struct AppendCodesKernelArgs {
  const void* qkv;
  int64_t qkv_stride;  // elements
  int num_heads;
  const int32_t* slots;
  int num_rows;  // of both appends
  Append appends[2];
  CodedHeads heads;
};

// A warp has K or V of one kv head of one row.
template <typename T, int kRuns>
__global__ void __launch_bounds__(kWarps * 32) AppendCodesKernel(const AppendCodesKernelArgs args) {
  AllowSuccessors();
  WaitForPredecessors();
  const CodedHeads& heads = args.heads;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int column = static_cast<int>(index % (2 * heads.num_kv_heads));  // K of every head, then V
  index /= 2 * heads.num_kv_heads;
  if (index >= args.num_rows) return;
  const bool in_first = index < args.appends[0].num_rows;
  const Append& append = args.appends[in_first ? 0 : 1];
  const int64_t row = append.row_begin + index - (in_first ? 0 : args.appends[0].num_rows);
  const int slot = __ldcg(args.slots + row);
  if (slot < 0) return;

  const bool is_value = column >= heads.num_kv_heads;
  const int kv_head = is_value ? column - heads.num_kv_heads : column;
  WarpHead<kRuns> head;
  head.Load(static_cast<const T*>(args.qkv) + row * args.qkv_stride +
                static_cast<int64_t>(args.num_heads + column) * heads.head_dim,
            heads.head_dim, lane);
  if (!is_value) head.Rotate(heads, lane);
  const int block = slot / heads.block_size;
  const int token = slot - block * heads.block_size;
  uint8_t* tile = append.codes +
                  (static_cast<int64_t>(block) * heads.num_kv_heads + kv_head) * heads.head_bytes +
                  heads.TileBegin(token / heads.tile_tokens, is_value);
  head.WriteCodes(heads, is_value, tile, token % heads.tile_tokens, lane);
}

}  // namespace

void AppendCodes(CudaStream& stream, const QkvPrepareArgs& args) {
  AppendCodesKernelArgs kernel_args = {
      .qkv = args.qkv.data,
      .qkv_stride = args.qkv.row_stride,
      .num_heads = static_cast<int>(args.num_heads),
      .slots = args.slots,
      .num_rows = 0,
      .appends = {},
      .heads = {},
  };
  for (size_t i = 0; i < args.appends.size(); ++i) {
    const KvRows& append = args.appends[i];
    if (append.num_rows == 0) continue;
    TANDEM_CHECK(IsCoded(append.kv.shape), "append of codes to a cache of {}",
                 KvFormatName(append.kv.shape.format));
    kernel_args.heads = CodedHeads::Of(append.kv);
    kernel_args.appends[i] = {.row_begin = static_cast<int>(append.row_begin),
                              .num_rows = static_cast<int>(append.num_rows),
                              .codes = static_cast<uint8_t*>(append.kv.data)};
    kernel_args.num_rows += static_cast<int>(append.num_rows);
  }
  if (kernel_args.num_rows == 0) return;
  const dim3 grid(CeilDivide(static_cast<int64_t>(kernel_args.num_rows) * 2 * args.num_kv_heads, kWarps));
  WithElementType(args.qkv.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    WithRuns(kernel_args.heads.head_dim, [&](auto runs) {
      LaunchRowKernel<AppendCodesKernel<T, decltype(runs)::kRuns>>("append_codes", grid, dim3(kWarps * 32),
                                                                   stream, kernel_args);
    });
  });
}

}  // namespace tandem
