#include "ops/cuda/linear/linear_runner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/linear/fp8/fp8_linear.h"
#include "ops/cuda/linear/fp8/fp8_rows.h"
#include "ops/cuda/linear/linear_kernels.h"
#include "ops/cuda/linear/skinny_linear.h"
#include "ops/cuda/row_alignment.h"
#include "ops/cuda/rows/silu_mul.h"

namespace tandem {
namespace {

// GPU memory; null: none.
const float* F32BiasOf(const CudaLinearWeight& weight) {
  return weight.has_bias() ? static_cast<const float*>(weight.bias(DType::kF32)) : nullptr;
}

constexpr int64_t kMaxFp8ScaledRows = 64 << 10;
constexpr size_t kFp8ScaleBytes = kMaxFp8ScaledRows * sizeof(float);
constexpr size_t kFp8CounterBytes = kQuantizedCounters * sizeof(uint32_t);

Fp8View Fp8ViewOf(const CudaLinearWeight& weight) {
  return {.codes = static_cast<const uint8_t*>(weight.view().data),
          .scales = weight.scales(),
          .out_features = weight.out_features(),
          .in_features = weight.in_features(),
          .group_size = weight.in_features()};
}

}  // namespace

const CudaLinearWeight& AsCudaLinearWeight(const LinearWeight* weight) {
  const auto* cuda_weight = dynamic_cast<const CudaLinearWeight*>(weight);
  TANDEM_CHECK(cuda_weight != nullptr, "linear: not a weight of the cuda backend");
  return *cuda_weight;
}

ProductKind ShapeOf(const CudaLinearWeight& weight, DType y_dtype) {
  return {weight.out_features(), weight.in_features(), weight.view().dtype, y_dtype,
          weight.has_bias(),     weight.is_gate_up()};
}

int64_t MaxFp8Rows(int64_t in_features) {
  constexpr int64_t kFittingStep = 128;
  static_assert(kMaxFp8RowWidth * kFittingStep <= static_cast<int64_t>(kMaxFp8XBytes));
  const int64_t fitting = static_cast<int64_t>(kMaxFp8XBytes) / in_features / kFittingStep * kFittingStep;
  return std::min(fitting, kMaxFp8ScaledRows);
}

LinearRunner::LinearRunner(Device* device) : device_(device), target_(CudaTargetOf(*device)) {
  CheckCublas(cublasLtCreate(&handle_), "create a handle");
  int gpu = 0;
  int gpu_sms = 0;
  TANDEM_CUDA_CHECK(cudaGetDevice(&gpu));
  TANDEM_CUDA_CHECK(cudaDeviceGetAttribute(&gpu_sms, cudaDevAttrMultiProcessorCount, gpu));
  if (target_.num_sms < gpu_sms) sm_limit_ = target_.num_sms;
}

LinearRunner::~LinearRunner() {
  cublasLtDestroy(handle_);
}

CublasLtProduct LinearRunner::Product(const LinearArgs& args, const LinearAlgorithm& algorithm) const {
  // Not null, so that they count; nothing is read.
  const CudaLinearWeight& weight = AsCudaLinearWeight(args.weight);
  auto* any = static_cast<uint8_t*>(weight.view().data);
  return Product(args, algorithm, {.x = any, .scales = reinterpret_cast<float*>(any)});
}

CublasLtProduct LinearRunner::Product(const LinearArgs& args, const LinearAlgorithm& algorithm,
                                      const Fp8Memory& fp8) const {
  const CudaLinearWeight& weight = AsCudaLinearWeight(args.weight);
  const bool has_bias = weight.has_bias() && !algorithm.separate_bias && !algorithm.separate_scales;
  const void* bias = has_bias ? weight.bias(args.y.dtype) : nullptr;
  MatrixView x = args.x;
  Fp8Scales scales;
  if (weight.is_fp8()) {
    x = MatrixView::Dense(fp8.x, DType::kF8E4M3, args.x.rows, args.x.cols);
    if (!algorithm.separate_scales) scales = {.x = fp8.scales, .weight = weight.scales()};
  }
  return {handle_, algorithm.method, x, weight.view(), bias, args.y.dtype, args.y, sm_limit_, scales};
}

std::optional<LinearAlgorithm> LinearRunner::FirstChoice(const LinearArgs& args) const {
  if (!AsCudaLinearWeight(args.weight).is_fp8()) return FirstOfCublasLt(args);
  LinearAlgorithm codes;
  codes.method = LinearMethod::kFp8Codes;
  const bool runs_codes = CanRun(args, codes);
  if (args.x.rows <= kFewFp8Rows && runs_codes) return codes;
  const std::optional<LinearAlgorithm> first = FirstOfCublasLt(args);
  return !first && runs_codes ? codes : first;
}

std::optional<LinearAlgorithm> LinearRunner::FirstOfCublasLt(const LinearArgs& args) const {
  const bool is_fp8 = AsCudaLinearWeight(args.weight).is_fp8();
  LinearAlgorithm algorithm;
  for (const bool separate_scales : {false, true}) {
    if (separate_scales && !is_fp8) break;
    algorithm.separate_scales = separate_scales;
    for (const bool separate_bias : {false, true}) {
      algorithm.separate_bias = separate_bias;
      const std::vector<cublasLtMatmulAlgo_t> choices =
          Product(args, algorithm).Heuristics(kLinearWorkspaceBytes, 1);
      if (choices.empty()) continue;
      algorithm.lt = choices.front();
      return algorithm;
    }
  }
  return std::nullopt;
}

bool LinearRunner::CanRun(const LinearArgs& args, const LinearAlgorithm& algorithm) const {
  const CudaLinearWeight& weight = AsCudaLinearWeight(args.weight);
  if (algorithm.method == LinearMethod::kSkinny) return SkinnyLinearSupports(target_, args.x, weight.view());
  if (algorithm.method == LinearMethod::kStreamed) {
    return StreamedLinearSupports(target_, algorithm.streamed, args.x, weight.view(), args.y) &&
           StreamedPartialSumBytes(target_, algorithm.streamed) <= kLinearWorkspaceBytes;
  }
  if (algorithm.method == LinearMethod::kFp8Codes) {
    return weight.is_fp8() && Fp8LinearSupports(target_, args.x, Fp8ViewOf(weight));
  }
  if (algorithm.method == LinearMethod::kCublasLtRowMajor && (weight.has_bias() || weight.is_fp8()))
    return false;
  if (weight.is_fp8() && !(RowsAligned16(args.x) && args.x.rows <= MaxFp8Rows(args.x.cols))) return false;
  return Product(args, algorithm).CanRun(algorithm.lt);
}

bool LinearRunner::PrepareWorkspace(CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  Workspace& workspace = workspaces_[stream.handle()];
  if (workspace.memory.data() != nullptr) return false;
  // Not of the same piece: cuBLASLt writes what it likes, and arrivals stay.
  constexpr size_t kArrivalBytes = kMaxStreamedArrivals * sizeof(uint32_t);
  workspace.arrivals = Allocate(stream, kArrivalBytes);
  workspace.memory = Allocate(stream, kLinearWorkspaceBytes);
  TANDEM_CUDA_CHECK(cudaMemsetAsync(workspace.arrivals.data(), 0, kArrivalBytes, stream.handle()));
  return true;
}

Buffer LinearRunner::Allocate(const CudaStream& stream, size_t bytes) const {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TANDEM_CUDA_CHECK(cudaStreamIsCapturing(stream.handle(), &capture));
  TANDEM_CHECK(capture == cudaStreamCaptureStatusNone,
               "linear: stream {} is being captured before its first product", stream.name());
  auto buffer = device_->Allocate(bytes, MemoryKind::kDevice, "workspace of linear operations");
  TANDEM_CHECK(buffer.ok(), "{}", buffer.error().message);
  return std::move(buffer).value();
}

size_t LinearRunner::Fp8Bytes() {
  return kMaxFp8XBytes + kFp8ScaleBytes + kFp8CounterBytes;
}

LinearRunner::Fp8Memory LinearRunner::PartsOf(const Buffer& fp8) {
  auto* memory = fp8.as<std::byte>();
  return {.x = reinterpret_cast<uint8_t*>(memory),
          .scales = reinterpret_cast<float*>(memory + kMaxFp8XBytes),
          .counters = reinterpret_cast<uint32_t*>(memory + kMaxFp8XBytes + kFp8ScaleBytes)};
}

void LinearRunner::PrepareFp8(CudaStream& stream) {
  Workspace& workspace = WorkspaceOf(stream);
  if (workspace.fp8.data() != nullptr) return;
  workspace.fp8 = Allocate(stream, Fp8Bytes());
  TANDEM_CUDA_CHECK(cudaMemsetAsync(PartsOf(workspace.fp8).counters, 0, kFp8CounterBytes, stream.handle()));
}

LinearRunner::Workspace& LinearRunner::WorkspaceOf(const CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  Workspace& workspace = workspaces_[stream.handle()];
  TANDEM_CHECK(workspace.memory.data() != nullptr, "linear: stream {} has no workspace", stream.name());
  return workspace;
}

StreamedWorkspace LinearRunner::StreamedWorkspaceOf(const CudaStream& stream) {
  const Workspace& workspace = WorkspaceOf(stream);
  return {.partial_sums = workspace.memory.data(), .arrivals = workspace.arrivals.as<uint32_t>()};
}

bool LinearRunner::Run(CudaStream& stream, const LinearArgs& args, const LinearAlgorithm& algorithm) {
  const CudaLinearWeight& weight = AsCudaLinearWeight(args.weight);
  const float* bias = F32BiasOf(weight);
  if (algorithm.method == LinearMethod::kSkinny) {
    LaunchSkinnyLinear(stream, args.x, weight.view(), bias, args.y);
    return true;
  }
  if (algorithm.method == LinearMethod::kStreamed) {
    LaunchStreamedLinear(stream, algorithm.streamed, args.x, weight.view(), bias, args.y,
                         StreamedWorkspaceOf(stream));
    return true;
  }
  if (weight.is_fp8()) return RunFp8(stream, args, algorithm);
  const CublasLtProduct product = Product(args, algorithm);
  void* workspace = WorkspaceOf(stream).memory.data();
  if (product.Run(stream.handle(), algorithm.lt, workspace) != CUBLAS_STATUS_SUCCESS) return false;
  if (bias != nullptr && algorithm.separate_bias) LaunchAddBias(stream, args.y, bias);
  return true;
}

bool LinearRunner::RunFp8(CudaStream& stream, const LinearArgs& args, const LinearAlgorithm& algorithm) {
  const CudaLinearWeight& weight = AsCudaLinearWeight(args.weight);
  const float* bias = F32BiasOf(weight);
  const Workspace& workspace = WorkspaceOf(stream);
  TANDEM_CHECK(workspace.fp8.data() != nullptr, "linear: stream {} has no memory for FP8", stream.name());
  const Fp8Memory fp8 = PartsOf(workspace.fp8);
  if (algorithm.method == LinearMethod::kFp8Codes) {
    LaunchFp8Linear(stream, args.x, Fp8ViewOf(weight), bias, args.y,
                    {.partials = workspace.memory.as<float>(), .counters = fp8.counters});
    return true;
  }
  TANDEM_CHECK(args.x.rows <= MaxFp8Rows(args.x.cols), "linear: {} rows of {} as FP8", args.x.rows,
               args.x.cols);
  LaunchQuantizeToFp8(stream, args.x, fp8.x, fp8.scales);
  const CublasLtProduct product = Product(args, algorithm, fp8);
  if (product.Run(stream.handle(), algorithm.lt, workspace.memory.data()) != CUBLAS_STATUS_SUCCESS)
    return false;
  if (algorithm.separate_scales) {
    LaunchScaleProduct(stream, args.y, 1.0F / kUnscaledFp8, fp8.scales, weight.scales(), bias);
  } else if (bias != nullptr && algorithm.separate_bias) {
    LaunchAddBias(stream, args.y, bias);
  }
  return true;
}

bool LinearRunner::CanFuse(const GateUpArgs& args) const {
  const CudaLinearWeight& weight = AsCudaLinearWeight(args.weight);
  return weight.is_gate_up() &&
         FusedGateUpSupports(target_, args.x, weight.view(), weight.has_bias(), args.y);
}

bool LinearRunner::RunGateUp(CudaStream& stream, const GateUpArgs& args, const LinearAlgorithm& algorithm) {
  if (algorithm.fused != FusedGateUp::kNone) {
    LaunchFusedGateUp(stream, algorithm.fused, args.x, AsCudaLinearWeight(args.weight).view(), args.y);
    return true;
  }
  const CudaLinearWeight& weight = AsCudaLinearWeight(args.weight);
  if (algorithm.method == LinearMethod::kStreamed && weight.is_gate_up() &&
      StreamedGateUpSupports(target_, algorithm.streamed, args.x, weight.view(), args.y)) {
    LaunchStreamedGateUp(stream, algorithm.streamed, args.x, weight.view(), F32BiasOf(weight), args.y,
                         StreamedWorkspaceOf(stream));
    return true;
  }
  if (algorithm.method == LinearMethod::kFp8Codes && weight.is_gate_up() &&
      Fp8GateUpSupports(target_, args.x, Fp8ViewOf(weight))) {
    LaunchFp8GateUp(stream, args.x, Fp8ViewOf(weight), F32BiasOf(weight), args.y);
    return true;
  }
  if (!Run(stream, {.x = args.x, .weight = args.weight, .y = args.scratch}, algorithm)) return false;
  LaunchSiluMul(stream, {.gate_up = args.scratch, .out = args.y});
  return true;
}

}  // namespace tandem
