#include "engine/cpu_kernel_choice.h"

#include <algorithm>

#include "base/kv_layout.h"
#include "cpu_attention/cpu_attention.h"
#include "ops/host/host_ops.h"
#include "trial/cpu_trials.h"

namespace tandem {

AttentionChoice ChooseCpuKernels(const EngineOptions& options, const ModelConfig& config, DType dtype,
                                 const KvFormats& formats, bool cpu_tier, Backend* backend) {
  HostOps* host_ops = backend->host_ops;
  if (!options.cpu_trial || (host_ops == nullptr && !cpu_tier)) return {};
  // More heads of a block together are no longer pieces to the memory.
  constexpr int64_t kMaxSpanHeads = 8;
  AttentionUse use;
  use.num_threads =
      options.cpu_threads > 0 ? options.cpu_threads : DefaultCpuAttentionThreads(backend->leave_cores);
  // Of the tier that attention reads on the CPU; where it reads both, of the cpu tier if there is one.
  use.kv_dtype = (cpu_tier ? formats.cpu : formats.gpu).k_type;
  use.block_size = KvShape{}.block_size;
  use.head_dim = config.head_dim;
  use.group_size = config.num_heads / config.num_kv_heads;
  // The ops take one head at a time, CPU attention all that are in one part.
  use.span_heads = host_ops != nullptr ? 1 : std::min(config.num_kv_heads, kMaxSpanHeads);
  use.any_isa = host_ops == nullptr && dtype != DType::kF32;
  CpuTrials trials(backend->cache_folder, backend->device.get());
  const AttentionChoice attention = trials.Choose(use);
  if (host_ops != nullptr) {
    const ProductChoice products = trials.Choose(ProductUse{.num_threads = use.num_threads, .dtype = dtype});
    host_ops->UseFetches(attention.fetch, products.fetch);
  }
  return attention;
}

}  // namespace tandem
