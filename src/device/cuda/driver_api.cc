#include "device/cuda/driver_api.h"

#include <cuda_runtime_api.h>

namespace tandem {
namespace {

// The versions whose ABI the declarations in driver_api.h have.
constexpr unsigned kCuda12_4 = 12040;
constexpr unsigned kCuda12_5 = 12050;

template <typename Function>
Status Find(const char* name, Function* function, unsigned version = kCuda12_4) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || address == nullptr) {
    return MakeError(ErrorCode::kUnavailable, "the NVIDIA driver is too old: it has no {}", name);
  }
  *function = reinterpret_cast<Function>(address);
  return {};
}

}  // namespace

Result<DriverApi> LoadDriverApi() {
  DriverApi api;
  TANDEM_RETURN_IF_ERROR(Find("cuStreamWaitValue32", &api.stream_wait_value));
  TANDEM_RETURN_IF_ERROR(Find("cuStreamWriteValue32", &api.stream_write_value));
  TANDEM_RETURN_IF_ERROR(Find("cuDeviceGetDevResource", &api.device_get_resource));
  TANDEM_RETURN_IF_ERROR(Find("cuDevSmResourceSplitByCount", &api.split_sms));
  TANDEM_RETURN_IF_ERROR(Find("cuDevResourceGenerateDesc", &api.generate_resource_desc));
  TANDEM_RETURN_IF_ERROR(Find("cuGreenCtxCreate", &api.green_context_create));
  TANDEM_RETURN_IF_ERROR(Find("cuGreenCtxDestroy", &api.green_context_destroy));
  TANDEM_RETURN_IF_ERROR(Find("cuGreenCtxStreamCreate", &api.green_context_stream_create, kCuda12_5));
  return api;
}

}  // namespace tandem
