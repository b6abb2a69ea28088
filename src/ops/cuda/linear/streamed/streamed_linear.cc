#include "ops/cuda/linear/streamed/streamed_linear.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/linear/streamed/streamed_arguments.h"
#include "ops/cuda/row_alignment.h"

namespace tandem {
namespace {

int64_t NumTiles(const StreamedTraits& traits, const MatrixView& weight) {
  const int64_t tile_outputs = int64_t{kStreamedTileOutputs} * traits.cluster;
  return (weight.rows + tile_outputs - 1) / tile_outputs;
}

int64_t NumSteps(const MatrixView& weight) {
  return (weight.cols + kStreamedStepElements - 1) / kStreamedStepElements;
}

bool StreamedFits(const CudaTarget& target, StreamedLinear kernel, const MatrixView& x,
                  const MatrixView& weight, const MatrixView& y) {
  constexpr int kHopper = 90;
  const StreamedTraits& traits = StreamedTraitsOf(kernel);
  const bool types = (x.dtype == DType::kBF16 || x.dtype == DType::kF16) && weight.dtype == x.dtype;
  return HasStreamedLinear() && target.compute_capability == kHopper && target.num_sms >= traits.cluster &&
         target.num_sms * kStreamedGroups <= kMaxStreamedArrivals && types && x.rows > 0 &&
         x.rows <= traits.max_rows &&
         WorkCut::Fits(NumTiles(traits, weight), NumSteps(weight), target.num_sms) && x.cols % 8 == 0 &&
         y.cols % 8 == 0 && RowsAligned16(x) && RowsAligned16(weight) && RowsAligned16(y);
}

#ifdef TANDEM_STREAMED_PRODUCTS

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

EncodeTiled FindEncodeTiled() {
  constexpr unsigned kCuda12_0 = 12000;
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  TANDEM_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, kCuda12_0,
                                                     cudaEnableDefault, &found));
  TANDEM_CHECK(found == cudaDriverEntryPointSuccess && address != nullptr,
               "the NVIDIA driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<EncodeTiled>(address);
}

void EnqueueStreamed(CudaStream& stream, StreamedLinear kernel, const MatrixView& x, const MatrixView& weight,
                     const float* bias, const MatrixView& y, bool is_gate_up,
                     const StreamedWorkspace& workspace) {
  const StreamedTraits& traits = StreamedTraitsOf(kernel);
  const StreamedMaps maps = {.weight = StreamedMapOf(weight, kStreamedTileOutputs),
                             .x = StreamedMapOf(x, traits.max_rows / traits.cluster)};
  StreamedArguments arguments;
  arguments.bias = bias;
  arguments.y = y.data;
  arguments.y_stride = y.row_stride;
  arguments.rows = static_cast<int>(x.rows);
  arguments.out_features = static_cast<int>(weight.rows);
  arguments.y_is_f32 = y.dtype == DType::kF32;
  arguments.is_gate_up = is_gate_up;
  arguments.cut = WorkCut::Of(static_cast<int>(NumTiles(traits, weight)), static_cast<int>(NumSteps(weight)),
                              stream.target().num_sms / traits.cluster);
  arguments.num_output_tiles = arguments.cut.num_tiles;
  arguments.workspace = workspace;
  (x.dtype == DType::kBF16 ? LaunchStreamedBf16 : LaunchStreamedFp16)(stream, kernel, maps, arguments);
}

#else

void EnqueueStreamed(CudaStream&, StreamedLinear, const MatrixView&, const MatrixView&, const float*,
                     const MatrixView&, bool, const StreamedWorkspace&) {}

#endif

}  // namespace

#ifdef TANDEM_STREAMED_PRODUCTS
CUtensorMap StreamedMapOf(const MatrixView& matrix, int box_rows) {
  static const EncodeTiled encode = FindEncodeTiled();
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.cols), static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t stride_bytes[1] = {static_cast<cuuint64_t>(matrix.row_stride) * DTypeSize(matrix.dtype)};
  const cuuint32_t box[2] = {kStreamedStepElements, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t element_strides[2] = {1, 1};
  CUtensorMap map;
  TANDEM_CUDA_CHECK(
      encode(
          &map,
          matrix.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
          2, matrix.data, sizes, stride_bytes, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
          CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "describe {} [{}, {}] stride {} for loads of {} rows", DTypeName(matrix.dtype), matrix.rows,
      matrix.cols, matrix.row_stride, box_rows);
  return map;
}

#endif

std::string_view StreamedLinearName(StreamedLinear kernel) {
  return StreamedTraitsOf(kernel).name;
}

std::optional<StreamedLinear> StreamedLinearFromName(std::string_view name) {
  if (name == StreamedLinearName(StreamedLinear::kNone)) return StreamedLinear::kNone;
  for (const StreamedLinear kernel : kStreamedLinears) {
    if (name == StreamedLinearName(kernel)) return kernel;
  }
  return std::nullopt;
}

int64_t MaxRowsOf(StreamedLinear kernel) {
  return StreamedTraitsOf(kernel).max_rows;
}

bool HasStreamedLinear() {
#ifdef TANDEM_STREAMED_PRODUCTS
  return true;
#else
  return false;
#endif
}

size_t StreamedPartialSumBytes(const CudaTarget& target, StreamedLinear kernel) {
  const StreamedTraits& traits = StreamedTraitsOf(kernel);
  return static_cast<size_t>(target.num_sms) * WorkCut::kPlacesAWorker * kStreamedTileOutputs *
         static_cast<size_t>(traits.max_rows) * sizeof(float);
}

bool StreamedLinearSupports(const CudaTarget& target, StreamedLinear kernel, const MatrixView& x,
                            const MatrixView& weight, const MatrixView& y) {
  return StreamedFits(target, kernel, x, weight, y) && (y.dtype == DType::kF32 || y.dtype == x.dtype);
}

bool StreamedGateUpSupports(const CudaTarget& target, StreamedLinear kernel, const MatrixView& x,
                            const MatrixView& weight, const MatrixView& y) {
  return StreamedFits(target, kernel, x, weight, y) && y.dtype == x.dtype;
}

void LaunchStreamedLinear(CudaStream& stream, StreamedLinear kernel, const MatrixView& x,
                          const MatrixView& weight, const float* bias, const MatrixView& y,
                          const StreamedWorkspace& workspace) {
  TANDEM_CHECK(kernel != StreamedLinear::kNone && x.rows == y.rows && x.cols == weight.cols &&
                   weight.rows == y.cols && StreamedLinearSupports(stream.target(), kernel, x, weight, y),
               "streamed linear {}: x {} [{}, {}] stride {}, weight [{}, {}], y {} [{}, {}] stride {}",
               StreamedLinearName(kernel), DTypeName(x.dtype), x.rows, x.cols, x.row_stride, weight.rows,
               weight.cols, DTypeName(y.dtype), y.rows, y.cols, y.row_stride);
  EnqueueStreamed(stream, kernel, x, weight, bias, y, /*is_gate_up=*/false, workspace);
}

void LaunchStreamedGateUp(CudaStream& stream, StreamedLinear kernel, const MatrixView& x,
                          const MatrixView& weight, const float* bias, const MatrixView& y,
                          const StreamedWorkspace& workspace) {
  TANDEM_CHECK(kernel != StreamedLinear::kNone && x.rows == y.rows && x.cols == weight.cols &&
                   weight.rows == 2 * y.cols && StreamedGateUpSupports(stream.target(), kernel, x, weight, y),
               "streamed gate-up {}: x {} [{}, {}] stride {}, weight [{}, {}], y {} [{}, {}] stride {}",
               StreamedLinearName(kernel), DTypeName(x.dtype), x.rows, x.cols, x.row_stride, weight.rows,
               weight.cols, DTypeName(y.dtype), y.rows, y.cols, y.row_stride);
  EnqueueStreamed(stream, kernel, x, weight, bias, y, /*is_gate_up=*/true, workspace);
}

}  // namespace tandem
