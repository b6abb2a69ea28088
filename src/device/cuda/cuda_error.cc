#include "device/cuda/cuda_error.h"

#include "base/check.h"

namespace tandem {

std::string CudaErrorText(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error));
}

std::string CudaErrorText(CUresult error) {
  return fmt::format("driver error {}", static_cast<int>(error));
}

void CudaCallFailed(const char* file, int line, const char* call, const std::string& error,
                    std::string_view what) {
  CheckFailed(file, line, call, fmt::format("{}{}{}", what, what.empty() ? "" : ": ", error));
}

}  // namespace tandem
