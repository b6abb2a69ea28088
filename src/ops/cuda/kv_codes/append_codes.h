// Codes of the K and V of new tokens.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/elementwise.h"

namespace tandem {

// The K and V of args.qkv, as they are there, to the slots of args.appends, whose caches are of codes. args
// is what CheckAppends wants; heads are multiples of 16 up to kMaxCodedHeadDim. For graphs too.
void AppendCodes(CudaStream& stream, const QkvPrepareArgs& args);

}  // namespace tandem
