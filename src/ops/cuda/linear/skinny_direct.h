// Between skinny_linear.cu and its kernel for compute capability 7.5.
#pragma once

#include "device/cuda/cuda_stream.h"

namespace tandem {

struct SkinnyArguments;

// The product of LaunchSkinnyLinear with weights of fp16.
void LaunchSkinnyDirect(CudaStream& stream, const SkinnyArguments& arguments);

}  // namespace tandem
