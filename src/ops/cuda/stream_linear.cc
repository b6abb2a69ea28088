#include "ops/cuda/stream_linear.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/stream_linear_kernel.h"

namespace tandem {
namespace {

constexpr int kHopper = 90;
constexpr int kSharedBytesOfHopper = 227 << 10;
// A team with less work would do little but add up.
constexpr int kMinUnitsOfTeam = 4;

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// Null if the driver lacks it. Looked up: a program that linked the driver would not start without one.
EncodeTiled FindEncodeTiled() {
  static const EncodeTiled encode = []() -> EncodeTiled {
    constexpr unsigned kCuda12_0 = 12000;
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, kCuda12_0,
                                                               cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
    return reinterpret_cast<EncodeTiled>(address);
  }();
  return encode;
}

// Boxes of kStreamChunk columns and box_rows rows. What lies outside of the matrix reads as zeros.
CUtensorMap MapOf(const MatrixView& matrix, int box_rows, CUtensorMapL2promotion promotion) {
  CUtensorMap map = {};
  const CUtensorMapDataType type =
      matrix.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const std::array<cuuint64_t, 2> sizes = {static_cast<cuuint64_t>(matrix.cols),
                                           static_cast<cuuint64_t>(matrix.rows)};
  const std::array<cuuint64_t, 1> stride_bytes = {static_cast<cuuint64_t>(matrix.row_stride) * 2};
  const std::array<cuuint32_t, 2> box = {kStreamChunk, static_cast<cuuint32_t>(box_rows)};
  const std::array<cuuint32_t, 2> steps = {1, 1};
  const CUresult result =
      FindEncodeTiled()(&map, type, 2, matrix.data, sizes.data(), stride_bytes.data(), box.data(),
                        steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TANDEM_CHECK(result == CUDA_SUCCESS, "stream linear: no tensor map of {} [{}, {}] stride {}: error {}",
               DTypeName(matrix.dtype), matrix.rows, matrix.cols, matrix.row_stride,
               static_cast<int>(result));
  return map;
}

int ColumnsOf(int64_t rows) {
  for (const int columns : {16, 32, 64, 96}) {
    if (rows <= columns) return columns;
  }
  return static_cast<int>(kMaxStreamRows);
}

}  // namespace

bool StreamLinearSupports(const CudaTarget& target, const MatrixView& x, const MatrixView& weight) {
  return target.compute_capability == kHopper && target.max_shared_bytes_per_block >= kSharedBytesOfHopper &&
         (weight.dtype == DType::kBF16 || weight.dtype == DType::kF16) && x.rows <= kMaxStreamRows &&
         weight.cols % 8 == 0 && x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(weight.data) % 16 == 0 && FindEncodeTiled() != nullptr;
}

void LaunchStreamLinear(CudaStream& stream, const MatrixView& x, const MatrixView& weight, const float* bias,
                        const MatrixView& y, const StreamLinearWorkspace& workspace, int variant) {
  TANDEM_CHECK(StreamLinearSupports(stream.target(), x, weight) && weight.row_stride == weight.cols,
               "stream linear: x [{}, {}] stride {}, weight [{}, {}] {}", x.rows, x.cols, x.row_stride,
               weight.rows, weight.cols, DTypeName(weight.dtype));
  TANDEM_CHECK(x.dtype == weight.dtype && x.cols == weight.cols && y.rows == x.rows &&
                   y.cols == weight.rows && (y.dtype == DType::kF32 || y.dtype == weight.dtype),
               "stream linear: x {} [{}, {}], y {} [{}, {}]", DTypeName(x.dtype), x.rows, x.cols,
               DTypeName(y.dtype), y.rows, y.cols);
  TANDEM_CHECK(variant >= 0 && variant < kNumStreamVariants, "stream linear: variant {}", variant);
  if (x.rows == 0) return;

  StreamPlan plan;
  plan.columns = ColumnsOf(x.rows);
  plan.tile_boxes = variant / 2 + 1;
  plan.team_ctas = variant % 2 + 1;
  const int64_t tile_outputs = int64_t{kStreamWeightBoxRows} * plan.tile_boxes * plan.team_ctas;
  const int64_t tiles = (weight.rows + tile_outputs - 1) / tile_outputs;
  const int64_t chunks = (weight.cols + kStreamChunk - 1) / kStreamChunk;
  const int64_t num_units = tiles * chunks;
  const int max_ctas = std::min(stream.target().num_sms, kStreamMaxCtas);
  plan.num_teams = static_cast<int>(
      std::clamp<int64_t>(num_units / kMinUnitsOfTeam, 1, std::max(max_ctas / plan.team_ctas, 1)));
  TANDEM_CHECK(num_units * (plan.num_teams + 1) <= std::numeric_limits<int32_t>::max(),
               "stream linear: a weight [{}, {}]", weight.rows, weight.cols);

  StreamArguments arguments;
  arguments.bias = bias;
  arguments.y = y.data;
  arguments.partials = static_cast<float*>(workspace.partials);
  arguments.counters = workspace.counters;
  arguments.y_stride = y.row_stride;
  arguments.num_units = static_cast<int>(num_units);
  arguments.rows = static_cast<int>(x.rows);
  arguments.out_features = static_cast<int>(weight.rows);
  arguments.chunks = static_cast<int>(chunks);
  arguments.num_teams = plan.num_teams;
  // Small against a team's share, so that no team is left without work.
  arguments.snap = num_units / plan.num_teams >= 8 ? 1 : 0;
  arguments.y_is_f32 = y.dtype == DType::kF32;
  const auto y_row_bytes = static_cast<size_t>(y.row_stride) * DTypeSize(y.dtype);
  arguments.y_is_aligned = (reinterpret_cast<uintptr_t>(y.data) | y_row_bytes) % 16 == 0;

  const CUtensorMap weight_map = MapOf(weight, kStreamWeightBoxRows, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  const CUtensorMap x_map = MapOf(x, plan.columns / plan.team_ctas, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  const auto launch = weight.dtype == DType::kBF16 ? LaunchStreamBF16 : LaunchStreamFP16;
  launch(stream, plan, weight_map, x_map, arguments);
}

}  // namespace tandem
