#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"
#include "ops/cuda/rows/silu.h"
#include "ops/cuda/rows/silu_mul.h"

namespace tandem {
namespace {

constexpr int kMaxThreads = 256;

// n / divisor for n below 2^31, as a product.
struct Division {
  uint32_t divisor;
  uint32_t multiplier;
  int shift;

  // from: 1 to 2^31.
  explicit Division(uint32_t from) : divisor(from) {
    int log = 0;
    while ((uint64_t{1} << log) < from) ++log;
    shift = 31 + log;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << shift) + from - 1) / from);
  }
  __device__ __forceinline__ uint32_t Quotient(uint32_t n) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(n) * multiplier >> shift);
  }
};

// The runs of all rows are numbered through; a CTA takes `share` of them, at most blockDim.x * kRuns. block:
// of GateUpOrder, as many columns of gate, then those of up; runs of 8 are blocks.
template <typename In, typename Out, int kWidth, int kRuns>
__global__ void __launch_bounds__(kMaxThreads, 4)
    SiluMulKernel(const In* gate_up, int64_t in_stride, Out* out, int64_t out_stride, Division row_runs,
                  uint32_t num_runs, uint32_t share, uint32_t block) {
  if constexpr (kWidth > 1) block = kWidth;
  AllowSuccessors();
  const In* gate_at[kRuns];
  Out* out_at[kRuns];
  bool exists[kRuns];
  const uint32_t begin = blockIdx.x * share;
  const uint32_t end = min(num_runs, begin + share);
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const uint32_t number = begin + i * blockDim.x + threadIdx.x;
    exists[i] = number < end;
    const uint32_t row = row_runs.Quotient(number);
    const uint32_t col = (number - row * row_runs.divisor) * kWidth;
    gate_at[i] = gate_up + row * in_stride + col + col / block * block;
    out_at[i] = out + row * out_stride + col;
  }
  WaitForPredecessors();
  Run<In, kWidth> gate[kRuns];
  Run<In, kWidth> up[kRuns];
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    if (!exists[i]) continue;
    gate[i].Load(gate_at[i]);
    up[i].Load(gate_at[i] + block);
  }
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    if (!exists[i]) continue;
    float gates[kWidth];
    float values[kWidth];
    gate[i].Get(gates);
    up[i].Get(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = SiluMulOne(gates[j], values[j]);
    Run<Out, kWidth> result;
    result.Set(values);
    result.Store(out_at[i]);
  }
}

template <typename In, typename Out, int kWidth, int kRuns>
void LaunchShares(CudaStream& stream, const SiluMulArgs& args, int64_t num_runs, int64_t share) {
  const unsigned threads = CeilDivide(share, int64_t{32} * kRuns) * 32;
  LaunchRowKernel<SiluMulKernel<In, Out, kWidth, kRuns>>(
      "silu_mul", CeilDivide(num_runs, share), threads, stream, static_cast<const In*>(args.gate_up.data),
      args.gate_up.row_stride, static_cast<Out*>(args.out.data), args.out.row_stride,
      Division(static_cast<uint32_t>(args.out.cols / kWidth)), static_cast<uint32_t>(num_runs),
      static_cast<uint32_t>(share), static_cast<uint32_t>(GateUpOrder(args.out.cols).block()));
}

template <typename In, typename Out>
void LaunchTyped(CudaStream& stream, const SiluMulArgs& args, bool wide) {
  const int64_t num_runs = args.out.rows * args.out.cols / (wide ? 8 : 1);
  TANDEM_CHECK(num_runs < int64_t{1} << 31, "silu_mul: out [{}, {}] is too large", args.out.rows,
               args.out.cols);
  if (!wide) return LaunchShares<In, Out, 1, 1>(stream, args, num_runs, kMaxThreads);
  const int64_t sm_runs = CeilDivide(num_runs, stream.target().num_sms);
  // Up to four CTAs an SM, all there at once with all loads under way: each SM has the same share, and few
  // rows leave room for the CTAs of the next kernel. Beyond that, CTAs as SMs become free.
  constexpr int kMostRuns = sizeof(In) == 4 ? 2 : 4;  // what registers hold
  constexpr int64_t kCtaRuns = int64_t{kMostRuns} * kMaxThreads;
  if (sm_runs > 4 * kCtaRuns) {
    return LaunchShares<In, Out, 8, 2>(stream, args, num_runs, int64_t{2} * kMaxThreads);
  }
  const int64_t sm_ctas = std::max<int64_t>(2, CeilDivide(sm_runs, kCtaRuns));
  // Whole 128-byte lines.
  const int64_t share =
      std::max<int64_t>(128, CeilDivide(num_runs, sm_ctas * stream.target().num_sms * 8) * int64_t{8});
  if (share <= kMaxThreads) {
    LaunchShares<In, Out, 8, 1>(stream, args, num_runs, share);
  } else if (share <= 2 * kMaxThreads) {
    LaunchShares<In, Out, 8, 2>(stream, args, num_runs, share);
  } else {
    LaunchShares<In, Out, 8, kMostRuns>(stream, args, num_runs, share);
  }
}

}  // namespace

void LaunchSiluMul(CudaStream& stream, const SiluMulArgs& args) {
  TANDEM_CHECK(args.gate_up.rows == args.out.rows && args.gate_up.cols == 2 * args.out.cols,
               "silu_mul: gate_up [{}, {}], out [{}, {}]", args.gate_up.rows, args.gate_up.cols,
               args.out.rows, args.out.cols);
  TANDEM_CHECK(IsFloatType(args.gate_up.dtype) && IsFloatType(args.out.dtype) &&
                   (args.gate_up.dtype == DType::kF32 || args.gate_up.dtype == args.out.dtype),
               "silu_mul: gate_up {}, out {}", DTypeName(args.gate_up.dtype), DTypeName(args.out.dtype));
  if (args.out.rows == 0 || args.out.cols == 0) return;
  static_assert(kGateUpBlock == 8);
  const bool wide = RowsAligned16(args.gate_up) && RowsAligned16(args.out) && args.out.cols % 8 == 0;
  WithElementTypes</*kFromF32=*/true, /*kToF32=*/false>(
      args.gate_up.dtype, args.out.dtype, [&](auto in_type, auto out_type) {
        LaunchTyped<typename decltype(in_type)::Type, typename decltype(out_type)::Type>(stream, args, wide);
      });
}

void CudaOps::SiluMul(Stream& stream, const SiluMulArgs& args) {
  LaunchSiluMul(AsCudaStream(stream), args);
}

}  // namespace tandem
