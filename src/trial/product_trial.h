// Tries how products of few rows are fastest on the host.
#pragma once

#include "base/result.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "trial/cpu_choice.h"

namespace tandem {

// Some 20 ms on all of the workers, which are idle and as many as the use has threads. Errors:
// kResourceExhausted.
Result<ProductChoice> TryProducts(const ProductUse& use, CpuAttention* workers, Device* device);

}  // namespace tandem
