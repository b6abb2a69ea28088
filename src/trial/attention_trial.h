// Tries how decode attention is fastest here.
#pragma once

#include <optional>

#include "base/result.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "trial/cpu_choice.h"

namespace tandem {

// Some 70 ms on all of the workers, which are idle and as many as the use has threads. isa: chosen before;
// then only fetches are tried, as where the use leaves no choice of it. Errors: kResourceExhausted.
Result<AttentionChoice> TryAttention(const AttentionUse& use, std::optional<CpuIsa> isa,
                                     CpuAttention* workers, Device* device);

// The part of it that tries for how many rows what they share is best read at once, with the instruction set
// and the fetches of `choice`.
Result<int64_t> TryReaders(const AttentionUse& use, const AttentionChoice& choice, CpuAttention* workers,
                           Device* device);

}  // namespace tandem
