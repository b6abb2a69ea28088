// In which types the tiers keep K and V, from flags.
#pragma once

#include "base/kv_layout.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "plan/iteration_plan.h"

namespace tandem {

struct KvFormats {
  KvFormat gpu;
  KvFormat cpu;

  const KvFormat& of(Tier tier) const { return tier == Tier::kGpu ? gpu : cpu; }
};

// dtype: the model's. Errors name the flag (param): kInvalidArgument for a type that is not known,
// kUnsupported for one that this head size is not made for.
Result<KvFormats> KvFormatsOf(const EngineOptions& options, DType dtype, int64_t head_dim);

}  // namespace tandem
