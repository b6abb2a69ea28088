// How an engine's CPU kernels are to compute: as a trial on this machine has found.
#pragma once

#include "base/dtype.h"
#include "engine/backend.h"
#include "engine/engine_options.h"
#include "engine/kv_formats.h"
#include "load/model_config.h"
#include "trial/cpu_choice.h"

namespace tandem {

// For CPU attention; tells it to the backend's ops too, where they compute on the CPU. Tries for some 50 to
// 100 ms what no earlier start has, while nothing else runs on the device. The default where the options want
// no trial or nothing runs on the CPU.
AttentionChoice ChooseCpuKernels(const EngineOptions& options, const ModelConfig& config, DType dtype,
                                 const KvFormats& formats, bool cpu_tier, Backend* backend);

}  // namespace tandem
