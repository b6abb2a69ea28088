// Errors of the CUDA runtime and driver inside ops and streams: fatal, with the operation and its shape.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tandem {

// What is said of a failed call: name and text of the error.
std::string CudaErrorText(cudaError_t error);
std::string CudaErrorText(CUresult error);

[[noreturn]] void CudaCallFailed(const char* file, int line, const char* call, const std::string& error,
                                 std::string_view what);

}  // namespace tandem

// TANDEM_CUDA_CHECK(call) or TANDEM_CUDA_CHECK(call, "rms_norm [{}, {}]", rows, cols): a GPU whose state is
// unknown cannot go on. Both APIs. Errors that a user can cause (no GPU, no memory) are Result<T> instead.
#define TANDEM_CUDA_CHECK(call, ...)                                                                   \
  do {                                                                                                 \
    const auto tandem_cuda_status = (call);                                                            \
    if (static_cast<int>(tandem_cuda_status) != 0) [[unlikely]] {                                      \
      ::tandem::CudaCallFailed(__FILE__, __LINE__, #call, ::tandem::CudaErrorText(tandem_cuda_status), \
                               std::string(__VA_OPT__(fmt::format(__VA_ARGS__))));                     \
    }                                                                                                  \
  } while (false)
