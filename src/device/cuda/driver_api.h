// The few functions of the CUDA driver API that the runtime does not offer. Looked up when the device is
// created: a program that linked the driver would not start on a machine without one.
#pragma once

#include <cuda.h>

#include "base/result.h"

namespace tandem {

struct DriverApi {
  CUresult (*stream_wait_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
  CUresult (*stream_write_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
  CUresult (*device_get_resource)(CUdevice, CUdevResource*, CUdevResourceType) = nullptr;
  CUresult (*split_sms)(CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*, unsigned,
                        unsigned) = nullptr;
  CUresult (*generate_resource_desc)(CUdevResourceDesc*, CUdevResource*, unsigned) = nullptr;
  CUresult (*green_context_create)(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned) = nullptr;
  CUresult (*green_context_destroy)(CUgreenCtx) = nullptr;
  CUresult (*green_context_stream_create)(CUstream*, CUgreenCtx, unsigned, int) = nullptr;
};

// The runtime must have been initialized. Errors: kUnavailable, naming the function the driver lacks.
Result<DriverApi> LoadDriverApi();

}  // namespace tandem
