#include <algorithm>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/skinny_direct.h"
#include "ops/cuda/linear/skinny_linear.h"
#include "ops/cuda/linear/skinny_values.cuh"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {
namespace {

// Each warp streams its slices of all its tiles through a ring of its own in shared memory, so no warp waits
// for another but at the end of a tile, where their sums are added.
//
// The first stages are requested before the predecessors have ended. A block takes less than half of an SM's
// shared memory and two work on an SM, so that the next kernel's blocks become resident, and fill their
// rings, as this one's end.
[[maybe_unused]] constexpr int kRowBytes = kValuesSliceElements * 2;  // of a stage
constexpr int kRingBytes = 12 << 10;                                  // of a warp
constexpr int kSharedBytes =
    kValuesWarps * (kRingBytes + kValuesSumsOfWarp * static_cast<int>(sizeof(float)));

template <typename T>
__global__ void __launch_bounds__(kValuesThreads, 2) SkinnyLinearKernel(const SkinnyArguments arguments) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr int kStageBytes = kValuesTileOutputs * kRowBytes;
  constexpr int kDepth = kRingBytes / kStageBytes;
  // Slices of x in registers. For rows of 4096 elements that is all of it.
  constexpr int kSlicesOfX = 8;
  extern __shared__ __align__(128) unsigned char shared[];

  AllowSuccessors();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int in_features = arguments.in_features;
  const int out_features = arguments.out_features;
  const int num_slices = (in_features + kValuesSliceElements - 1) / kValuesSliceElements;
  const int num_tiles = (out_features + kValuesTileOutputs - 1) / kValuesTileOutputs;
  const int first_tile = static_cast<int>(blockIdx.x);
  const int tile_step = static_cast<int>(gridDim.x);
  const int block_tiles = (num_tiles - first_tile + tile_step - 1) / tile_step;
  const int warp_slices = warp < num_slices ? (num_slices - warp + kValuesWarps - 1) / kValuesWarps : 0;
  int stages_to_request = block_tiles * warp_slices;

  // Requests: lane l brings 16 bytes (chunk l % 8) of rows l / 8, l / 8 + 4, ... of a stage. Odd rows have
  // their halves exchanged, which spreads the fragments that a warp reads at once over all banks.
  const uint32_t ring =
      static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + static_cast<uint32_t>(warp * kRingBytes);
  const uint64_t policy = StreamingPolicy();
  const int request_row = lane / 8;
  const int request_chunk = lane % 8;
  const uint32_t request_to =
      ring + static_cast<uint32_t>(request_row * kRowBytes + (request_chunk ^ (request_row % 2 * 4)) * 16);
  int request_slice = warp;
  int request_output = first_tile * kValuesTileOutputs + request_row;
  const int64_t row_bytes = static_cast<int64_t>(in_features) * 2;
  const auto* request_from = static_cast<const unsigned char*>(arguments.weight) +
                             request_output * row_bytes + request_slice * kRowBytes + request_chunk * 16;
  const int64_t to_next_tile =
      tile_step * kValuesTileOutputs * row_bytes - warp_slices * kValuesWarps * kRowBytes;
  const auto request_stage = [&](int slot) {
    const uint32_t to = request_to + static_cast<uint32_t>(slot * kStageBytes);
    const bool inside = request_slice * kValuesSliceElements + request_chunk * 8 < in_features;
    const unsigned char* from = request_from;
#pragma unroll
    for (int i = 0; i < kValuesTileOutputs / 4; ++i) {
      CopyAsync(to + static_cast<uint32_t>(i * 4 * kRowBytes), from,
                inside && request_output + i * 4 < out_features, policy);
      from += 4 * row_bytes;
    }
    --stages_to_request;
    request_slice += kValuesWarps;
    request_from += kValuesWarps * kRowBytes;
    if (request_slice >= num_slices) {
      request_slice = warp;
      request_output += tile_step * kValuesTileOutputs;
      request_from += to_next_tile;
    }
  };
#pragma unroll
  for (int slot = 0; slot < kDepth; ++slot) {
    if (stages_to_request > 0) request_stage(slot);
    CommitCopies();
  }

  // Everything above is weights; x and y belong to other kernels until here.
  WaitForPredecessors();

  // Fragments: with group = lane / 4 and member = lane % 4 the tensor core multiplies, for two rows of the
  // weight (group, group + 8) and one row of x (group), the elements that the four members hold. Which
  // element of k is at which place does not matter as long as both sides agree: a member holds 8 neighbours.
  const int group = lane / 4;
  const int member = lane % 4;
  const auto* x = static_cast<const T*>(arguments.x);
  uint4 xs[kSlicesOfX][2];
  const auto load_x = [&](uint4(&to)[2], int slice) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = slice * kValuesSliceElements + half * 32 + member * 8;
      to[half] = make_uint4(0, 0, 0, 0);
      if (group < arguments.rows && k < in_features) {
        to[half] = *reinterpret_cast<const uint4*>(x + group * arguments.x_stride + k);
      }
    }
  };
  const auto load_first_x = [&] {
#pragma unroll
    for (int i = 0; i < kSlicesOfX; ++i) load_x(xs[i], warp + i * kValuesWarps);
  };
  auto* sums_of_warps = reinterpret_cast<float*>(shared + kValuesWarps * kRingBytes);
  const uint32_t fragment_row = ring + static_cast<uint32_t>(group * kRowBytes);

  load_first_x();
  int slot = 0;
  for (int tile = first_tile; tile < num_tiles; tile += tile_step) {
    float sums[4] = {};
    for (int first = 0; first < warp_slices; first += kSlicesOfX) {
#pragma unroll
      for (int i = 0; i < kSlicesOfX; ++i) {
        if (first + i >= warp_slices) break;
        WaitForCopies<kDepth - 1>();
        __syncwarp();
        const uint32_t stage = fragment_row + static_cast<uint32_t>(slot * kStageBytes);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int chunk = (half * 4 + member) ^ (group % 2 * 4);
          const uint32_t at = stage + static_cast<uint32_t>(chunk * 16);
          const uint4 low = LoadShared(at);
          const uint4 high = LoadShared(at + 8 * kRowBytes);
          const uint4 of_x = xs[i][half];
          MultiplyAdd<T>(sums, low.x, high.x, low.y, high.y, of_x.x, of_x.y);
          MultiplyAdd<T>(sums, low.z, high.z, low.w, high.w, of_x.z, of_x.w);
        }
        __syncwarp();  // all lanes have read the stage
        if (stages_to_request > 0) request_stage(slot);
        CommitCopies();
        slot = slot + 1 == kDepth ? 0 : slot + 1;
        if (first + i + kSlicesOfX < warp_slices)
          load_x(xs[i], warp + (first + i + kSlicesOfX) * kValuesWarps);
      }
    }
    // Every tile needs the same x.
    if (warp_slices > kSlicesOfX && tile + tile_step < num_tiles) load_first_x();

    StoreValuesTile<T>(arguments, tile, sums, sums_of_warps);
  }
#else
  __trap();
#endif
}

template <typename T>
void Launch(CudaStream& stream, const SkinnyArguments& arguments) {
  auto* kernel = SkinnyLinearKernel<T>;
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [kernel] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    // Room for a block of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  }));
  const int num_tiles = (arguments.out_features + kValuesTileOutputs - 1) / kValuesTileOutputs;
  const int grid = std::min(num_tiles, stream.target().num_sms * 2);
  LaunchKernel("skinny linear", kernel, dim3(static_cast<unsigned>(grid)), dim3(kValuesThreads), kSharedBytes,
               stream, arguments);
}

// Of GPUs before 8.0.
bool IsDirect(const CudaTarget& target) {
  return target.compute_capability < 80;
}

}  // namespace

bool SkinnyLinearSupports(const CudaTarget& target, const MatrixView& x, const MatrixView& weight) {
  const bool has_kernel = IsDirect(target)
                              ? target.compute_capability >= 75 && weight.dtype == DType::kF16
                              : target.max_shared_bytes_per_block >= kSharedBytes &&
                                    (weight.dtype == DType::kBF16 || weight.dtype == DType::kF16);
  return has_kernel && x.rows <= kMaxSkinnyRows && weight.cols % 8 == 0 && x.row_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
}

void LaunchSkinnyLinear(CudaStream& stream, const MatrixView& x, const MatrixView& weight, const float* bias,
                        const MatrixView& y) {
  TANDEM_CHECK(SkinnyLinearSupports(stream.target(), x, weight) && weight.row_stride == weight.cols,
               "skinny linear: x [{}, {}] stride {}, weight [{}, {}] {}", x.rows, x.cols, x.row_stride,
               weight.rows, weight.cols, DTypeName(weight.dtype));
  TANDEM_CHECK(x.dtype == weight.dtype && x.cols == weight.cols && y.rows == x.rows &&
                   y.cols == weight.rows && (y.dtype == DType::kF32 || y.dtype == weight.dtype),
               "skinny linear: x {} [{}, {}], y {} [{}, {}]", DTypeName(x.dtype), x.rows, x.cols,
               DTypeName(y.dtype), y.rows, y.cols);
  if (x.rows == 0) return;
  SkinnyArguments arguments;
  arguments.weight = weight.data;
  arguments.x = x.data;
  arguments.bias = bias;
  arguments.y = y.data;
  arguments.x_stride = x.row_stride;
  arguments.y_stride = y.row_stride;
  arguments.out_features = static_cast<int>(weight.rows);
  arguments.in_features = static_cast<int>(weight.cols);
  arguments.rows = static_cast<int>(x.rows);
  arguments.y_is_f32 = y.dtype == DType::kF32;
  if (IsDirect(stream.target())) {
    LaunchSkinnyDirect(stream, arguments);
  } else if (weight.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, arguments);
  } else {
    Launch<__half>(stream, arguments);
  }
}

}  // namespace tandem
