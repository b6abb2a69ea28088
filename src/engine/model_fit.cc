#include "engine/model_fit.h"

#include <algorithm>

#include "engine/cache_sizing.h"
#include "engine/kv_formats.h"
#include "model/weight_formats.h"

namespace tandem {
namespace {

int64_t TokensOf(const KvCacheOptions& cache, Tier tier) {
  return (tier == Tier::kGpu ? cache.gpu.num_blocks : cache.cpu.num_blocks) * cache.gpu.shape.block_size;
}

Status SizeTiers(const ModelConfig& config, const Backend& backend, DType dtype, ModelFit* fit) {
  const int64_t reserved_bytes = fit->weight_bytes + static_cast<int64_t>(backend.workspace_bytes);
  const auto free_bytes = static_cast<int64_t>(backend.device->FreeBytes(MemoryKind::kDevice));
  if (reserved_bytes > free_bytes) {
    return MakeError(ErrorCode::kResourceExhausted, "the weights take {} MiB, {} MiB are free",
                     reserved_bytes >> 20, free_bytes >> 20);
  }
  EngineOptions options;
  TANDEM_ASSIGN_OR_RETURN(const KvFormats formats, KvFormatsOf(options, dtype, config.head_dim));
  const auto size = [&] {
    return SizeCache(options, config, formats, *backend.device, static_cast<size_t>(reserved_bytes));
  };
  TANDEM_ASSIGN_OR_RETURN(const KvCacheOptions gpu_only, size());
  fit->gpu_kv_tokens = TokensOf(gpu_only, Tier::kGpu);
  const auto gpu_bytes = static_cast<int64_t>(gpu_only.LayoutOf(Tier::kGpu).TotalBytes().value_or(0));
  options.cpu_kv_cache =
      CacheSize{.unit = CacheSize::Unit::kBytes,
                .amount = DefaultCpuCacheBytes(*backend.device, gpu_bytes + reserved_bytes)};
  // A cpu tier of no block is none, and no error.
  if (const Result<KvCacheOptions> both = size(); both.ok()) {
    fit->gpu_kv_tokens = TokensOf(*both, Tier::kGpu);
    fit->cpu_kv_tokens = TokensOf(*both, Tier::kCpu);
  }
  return {};
}

}  // namespace

std::vector<ModelFit> FitModel(const Checkpoint& checkpoint, const Backend& backend, DType dtype) {
  std::vector<ModelFit> fits;
  for (const Quantization quantization : AllQuantizations()) {
    if (quantization == Quantization::kAuto) continue;  // one of the others, by what the backend prefers
    ModelFit fit = {.quantization = quantization};
    const auto weights =
        EstimateWeights(checkpoint, {.quantization = quantization, .dtype = dtype}, *backend.ops);
    if (weights.ok()) {
      fit.weights = weights->form;
      fit.weight_bytes = weights->bytes;
      const Status sized = SizeTiers(checkpoint.config(), backend, dtype, &fit);
      if (!sized.ok()) fit.error = sized.error().message;
    } else {
      fit.error = weights.error().message;
    }
    fits.push_back(std::move(fit));
  }
  // A file of floats has nothing to keep, one of codes nothing to quantize.
  const auto widened = std::ranges::find(fits, Quantization::kNone, &ModelFit::quantization);
  const int64_t widened_bytes = widened->weight_bytes;
  std::erase_if(fits, [widened_bytes](const ModelFit& fit) {
    return fit.quantization == Quantization::kKeep && fit.error.empty() && fit.weight_bytes == widened_bytes;
  });
  if (fits.front().quantization == Quantization::kKeep) {
    std::erase_if(fits, [kept = fits.front()](const ModelFit& fit) {
      return fit.quantization != kept.quantization && fit.error == kept.error &&
             fit.weights == kept.weights && fit.weight_bytes == kept.weight_bytes;
    });
  }
  return fits;
}

int FewestShards(const std::vector<int>& counts, int64_t weight_bytes, int64_t kv_bytes_per_token,
                 int64_t free_bytes) {
  constexpr int64_t kTokens = 4096;
  const int64_t needed_bytes = weight_bytes + kTokens * kv_bytes_per_token;
  const auto fitting =
      std::ranges::find_if(counts, [&](int count) { return needed_bytes <= count * free_bytes; });
  return fitting == counts.end() ? 0 : *fitting;
}

}  // namespace tandem
