// Samples one row of logits. Separate from the op, so that it is a pure function.
#pragma once

#include <cstdint>
#include <span>

#include "ops/host/rows/row_kernels.h"
#include "ops/sampling.h"

namespace tandem {

// Uniform in [0, 1), a function of its arguments only.
double UniformDraw(uint64_t seed, uint64_t position);

// Thread-safe. NaN logits count as -inf; a valid id comes back whatever the logits and bans are.
SampledToken SampleToken(std::span<const float> logits, const SampleRow& row, const RowKernels& kernels);

}  // namespace tandem
