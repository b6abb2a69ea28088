#include <algorithm>

#include "ops/cuda/fragments.cuh"
#include "ops/cuda/linear/quantized/dequantize.h"
#include "ops/cuda/linear/transpose_in_quad.cuh"
#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float NumberAt(const std::byte* at) {
  return __half2float(*reinterpret_cast<const __half*>(at));
}

// Element i of a step, of output r or (upper) r + 8: words as code_layout.h has them; second: of 8 bits.
template <int kBits>
__device__ __forceinline__ int CodeOf(uint32_t first, uint32_t second, int upper, int i) {
  if constexpr (kBits == 4) {
    return static_cast<int>(first >> (4 * (upper * 2 + i / 2) + 16 * (i % 2)) & 15U);
  } else {
    return static_cast<int>((i < 2 ? first : second) >> (8 * (i % 2 * 2 + upper)) & 255U);
  }
}

struct DequantizeArguments {
  CodesView codes;
  int64_t first_output = 0;
  int64_t num_outputs = 0;
  void* to = nullptr;
};

// A warp takes one record after the other; a lane what it would hold of it in a product.
template <typename T, int kBits>
__global__ void __launch_bounds__(kThreads) DequantizeKernel(const DequantizeArguments arguments) {
  AllowSuccessors();
  WaitForPredecessors();
  const CodeLayout& layout = arguments.codes.layout;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int r = lane / 4;
  const int t = lane % 4;
  const int num_slices = layout.num_slices();
  const int num_chunks = layout.code_bytes() / 512;
  const int log_group_size = 31 - __clz(layout.group_size);  // a power of two
  const int numbers = layout.numbers_per_group();
  const float zero = static_cast<float>(layout.zero_code());
  constexpr int kStepsPerChunk = kBits == 4 ? 4 : 2;
  const int64_t num_tiles = (arguments.num_outputs + kRecordOutputs - 1) / kRecordOutputs;
  const uint32_t step_warps = gridDim.x * (kThreads / 32);
  const auto num_records = static_cast<uint32_t>(num_tiles * num_slices);
  for (uint32_t i = blockIdx.x * (kThreads / 32) + threadIdx.x / 32; i < num_records; i += step_warps) {
    const int64_t tile = i / static_cast<uint32_t>(num_slices);
    const int64_t slice = i % static_cast<uint32_t>(num_slices);
    const int64_t begin = arguments.first_output + tile * kRecordOutputs;
    const std::byte* record = arguments.codes.records + layout.RecordBegin(begin, slice);
    float factors[2];
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int64_t output = begin + r + upper * 8;
      factors[upper] = output < arguments.codes.out_features ? arguments.codes.factors[output] : 0.0F;
    }
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      const uint4 words = *reinterpret_cast<const uint4*>(record + chunk * 512 + lane * 16);
#pragma unroll
      for (int pair = 0; pair < kStepsPerChunk / 2; ++pair) {
        const int step = chunk * kStepsPerChunk + pair * 2;
        // Of the two steps.
        const uint32_t first[2] = {kBits == 8 || pair == 0 ? words.x : words.z,
                                   kBits == 8 ? words.z : (pair == 0 ? words.y : words.w)};
        const uint32_t second[2] = {words.y, words.w};  // of 8 bits
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
          const int64_t row = tile * kRecordOutputs + r + upper * 8;
          uint32_t pairs[4];  // of the two steps
#pragma unroll
          for (int s = 0; s < 2; ++s) {
            const int group = (step + s) * 16 >> log_group_size;
            const std::byte* number = record + layout.code_bytes() +
                                      ((r * layout.groups_per_slice() + group) * numbers * 2 + upper) * 2;
            const float scale = NumberAt(number);
            const float minimum = layout.has_minimum ? NumberAt(number + 4) : 0.0F;
            float values[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const auto code = static_cast<float>(CodeOf<kBits>(first[s], second[s], upper, e));
              values[e] = fmaf(scale, code - zero, minimum) * factors[upper];
            }
            pairs[2 * s] = PackPair<T>(values[0], values[1]);
            pairs[2 * s + 1] = PackPair<T>(values[2], values[3]);
          }
          // Now 8 in sequence of the 32.
          TransposeInQuad(pairs, t);
          const int64_t k = slice * layout.slice_size() + step * 16 + t * 8;
          if (row < arguments.num_outputs && k < layout.in_features) {
            *reinterpret_cast<uint4*>(static_cast<T*>(arguments.to) + row * layout.in_features + k) =
                make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
          }
        }
      }
    }
  }
}

// A block for each row.
__global__ void __launch_bounds__(kThreads)
    GatherDequantizedKernel(const CodesView codes, const int32_t* ids, int32_t first_id, float* to,
                            int64_t to_stride) {
  AllowSuccessors();
  WaitForPredecessors();
  const CodeLayout& layout = codes.layout;
  const int64_t output = int64_t{ids[blockIdx.x]} - first_id;
  const bool is_there = output >= 0 && output < codes.out_features;
  float* row = to + blockIdx.x * to_stride;
  const float factor = is_there ? codes.factors[output] : 0.0F;
  const auto mask = static_cast<uint32_t>((1 << layout.bits) - 1);
  const int zero = layout.zero_code();
  for (int64_t k = threadIdx.x; k < layout.in_features; k += kThreads) {
    float value = 0.0F;
    if (is_there) {
      const CodePlace place = layout.PlaceOfCode(output, k);
      const auto byte = static_cast<uint32_t>(codes.records[place.byte]);
      const auto code = static_cast<int>(byte >> place.shift & mask);
      const float minimum =
          layout.has_minimum ? NumberAt(codes.records + layout.PlaceOfNumber(output, k, 1)) : 0.0F;
      const float scale = NumberAt(codes.records + layout.PlaceOfNumber(output, k, 0));
      value = fmaf(scale, static_cast<float>(code - zero), minimum) * factor;
    }
    row[k] = value;
  }
}

}  // namespace

void LaunchDequantize(CudaStream& stream, const CodesView& codes, int64_t first_output,
                      const MatrixView& to) {
  TANDEM_CHECK(first_output % kCodePanelOutputs == 0 && first_output + to.rows <= codes.out_features &&
                   to.cols == codes.layout.in_features && to.row_stride == to.cols && IsAligned16(to.data),
               "dequantize: outputs [{}, {}) of [{}, {}] into [{}, {}]", first_output, first_output + to.rows,
               codes.out_features, codes.layout.in_features, to.rows, to.cols);
  const DequantizeArguments arguments = {codes, first_output, to.rows, to.data};
  const int64_t num_records =
      DivideUp(to.rows, int64_t{kRecordOutputs}) * static_cast<int64_t>(codes.layout.num_slices());
  const unsigned grid =
      std::min(CeilDivide(num_records, kThreads / 32), static_cast<unsigned>(stream.target().num_sms) * 16);
  if (grid == 0) return;
  const auto launch = [&](auto type) {
    using T = typename decltype(type)::Type;
    if (codes.layout.bits == 4) {
      LaunchRowKernel<DequantizeKernel<T, 4>>("dequantize", grid, kThreads, stream, arguments);
    } else {
      LaunchRowKernel<DequantizeKernel<T, 8>>("dequantize", grid, kThreads, stream, arguments);
    }
  };
  TANDEM_CHECK(to.dtype == DType::kBF16 || to.dtype == DType::kF16, "dequantize to {}", DTypeName(to.dtype));
  if (to.dtype == DType::kBF16) return launch(ElementType<Bf16>{});
  launch(ElementType<Fp16>{});
}

void LaunchGatherDequantized(CudaStream& stream, const CodesView& codes, const int32_t* ids, int32_t first_id,
                             const MatrixView& to) {
  TANDEM_CHECK(ids != nullptr && to.dtype == DType::kF32 && to.cols == codes.layout.in_features,
               "embedding: codes [{}, {}], out {} [{}, {}]", codes.out_features, codes.layout.in_features,
               DTypeName(to.dtype), to.rows, to.cols);
  if (to.rows == 0) return;
  LaunchRowKernel<GatherDequantizedKernel>("embedding", static_cast<unsigned>(to.rows), kThreads, stream,
                                           codes, ids, first_id, static_cast<float*>(to.data), to.row_stride);
}

}  // namespace tandem
