// Ops::SiluMul for the parts of the cuda backend that have a stream of it.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/elementwise.h"

namespace tandem {

// args.gate_up: in the order of GateUpOrder (ops/cuda/linear/gate_up_order.h).
void LaunchSiluMul(CudaStream& stream, const SiluMulArgs& args);

}  // namespace tandem
