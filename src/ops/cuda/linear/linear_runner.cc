#include "ops/cuda/linear/linear_runner.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/linear/linear_kernels.h"
#include "ops/cuda/linear/skinny_linear.h"
#include "ops/cuda/rows/silu_mul.h"

namespace tandem {
namespace {

// GPU memory; null: none.
const float* F32BiasOf(const CudaLinearWeight& weight) {
  return weight.has_bias() ? static_cast<const float*>(weight.bias(DType::kF32)) : nullptr;
}

}  // namespace

const CudaLinearWeight& AsCudaLinearWeight(const LinearWeight* weight) {
  const auto* cuda_weight = dynamic_cast<const CudaLinearWeight*>(weight);
  TANDEM_CHECK(cuda_weight != nullptr, "linear: not a weight of the cuda backend");
  return *cuda_weight;
}

ProductKind ShapeOf(const CudaLinearWeight& weight, DType y_dtype) {
  return {weight.out_features(), weight.in_features(), weight.dtype(), y_dtype,
          weight.has_bias(),     weight.is_gate_up()};
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

CublasLtProduct LinearRunner::Product(LinearMethod method, const LinearArgs& args, bool separate_bias) const {
  const CudaLinearWeight& weight = AsCudaLinearWeight(args.weight);
  const void* bias = weight.has_bias() && !separate_bias ? weight.bias(args.y.dtype) : nullptr;
  return {handle_, method, args.x, weight.view(), bias, args.y.dtype, args.y, sm_limit_};
}

std::optional<LinearAlgorithm> LinearRunner::FirstChoice(const LinearArgs& args) const {
  for (const bool separate_bias : {false, true}) {
    const std::vector<cublasLtMatmulAlgo_t> choices =
        Product(LinearMethod::kCublasLt, args, separate_bias).Heuristics(kLinearWorkspaceBytes, 1);
    if (choices.empty()) continue;
    LinearAlgorithm algorithm;
    algorithm.separate_bias = separate_bias;
    algorithm.lt = choices.front();
    return algorithm;
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
  if (algorithm.method == LinearMethod::kCublasLtRowMajor && weight.has_bias()) return false;
  return Product(algorithm.method, args, algorithm.separate_bias).CanRun(algorithm.lt);
}

bool LinearRunner::PrepareWorkspace(CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  Workspace& workspace = workspaces_[stream.handle()];
  if (workspace.memory.data() != nullptr) return false;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TANDEM_CUDA_CHECK(cudaStreamIsCapturing(stream.handle(), &capture));
  TANDEM_CHECK(capture == cudaStreamCaptureStatusNone,
               "linear: stream {} is being captured before its first product", stream.name());
  const auto allocate = [&](size_t bytes) {
    auto buffer = device_->Allocate(bytes, MemoryKind::kDevice, "workspace of linear operations");
    TANDEM_CHECK(buffer.ok(), "{}", buffer.error().message);
    return std::move(buffer).value();
  };
  // Not of the same piece: cuBLASLt writes what it likes, and arrivals stay.
  constexpr size_t kArrivalBytes = kMaxStreamedArrivals * sizeof(uint32_t);
  workspace.arrivals = allocate(kArrivalBytes);
  workspace.memory = allocate(kLinearWorkspaceBytes);
  TANDEM_CUDA_CHECK(cudaMemsetAsync(workspace.arrivals.data(), 0, kArrivalBytes, stream.handle()));
  return true;
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
  const CublasLtProduct product = Product(algorithm.method, args, algorithm.separate_bias);
  void* workspace = WorkspaceOf(stream).memory.data();
  if (product.Run(stream.handle(), algorithm.lt, workspace) != CUBLAS_STATUS_SUCCESS) return false;
  if (bias != nullptr && algorithm.separate_bias) LaunchAddBias(stream, args.y, bias);
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
  if (!Run(stream, {.x = args.x, .weight = args.weight, .y = args.scratch}, algorithm)) return false;
  LaunchSiluMul(stream, {.gate_up = args.scratch, .out = args.y});
  return true;
}

}  // namespace tandem
