#include "profile/profiler.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "plan/iteration_plan.h"
#include "profile/cpu_tier_costs.h"
#include "profile/gpu_costs.h"
#include "profile/shard_costs.h"

namespace tandem {
namespace {

// Of the budget. The cpu tier's come first, for what they leave over goes to the others; without a cpu tier
// all of it does.
constexpr double kCpuAttentionShare = 0.18;
constexpr double kSharedReadsShare = 0.02;
constexpr double kExchangeShare = 0.04;
constexpr double kSwapShare = 0.06;
constexpr double kOutsideShare = 0.10;
constexpr double kDecodeShare = 0.15;
constexpr double kPrefillShare = 0.20;
constexpr double kLinearShare = 0.25;
constexpr double kAllReduceShare = 0.05;  // with shards: of that of the linear operations

// Device::Description without the memory it may use, which no cost depends on.
std::string DeviceName(const Device& device) {
  std::string name = device.Description();
  constexpr std::string_view kMemory = " MiB";
  if (name.ends_with(kMemory)) name.resize(std::min(name.size(), name.rfind(',')));
  return fmt::format("{}: {}", device.backend(), name);
}

}  // namespace

Result<CostTable> Profile(const ProfileParts& parts, const ProfileOptions& options) {
  CostSampler sampler(options.budget_seconds, options.progress);
  CostMeasurements measured;
  measured.num_layers = parts.decoder->config().num_layers;
  measured.row_tiles = parts.ops->ProductTiles();
  TANDEM_ASSIGN_OR_RETURN(measured.gpu_decode_attention,
                          MeasureGpuDecodeAttention(parts, kDecodeShare, &sampler));
  if (parts.cpu_attention != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(CpuTierProfiler cpu_tier, CpuTierProfiler::Create(parts));
    TANDEM_ASSIGN_OR_RETURN(measured.cpu_attention, cpu_tier.MeasureAttention(kCpuAttentionShare, &sampler));
    TANDEM_ASSIGN_OR_RETURN(measured.shared_reads, cpu_tier.MeasureSharedReads(kSharedReadsShare, &sampler));
    TANDEM_ASSIGN_OR_RETURN(measured.exchange, cpu_tier.MeasureExchange(kExchangeShare, &sampler));
    TANDEM_ASSIGN_OR_RETURN(measured.swap, cpu_tier.MeasureSwap(kSwapShare, &sampler));
  }
  TANDEM_ASSIGN_OR_RETURN(measured.outside_layers, MeasureOutsideLayers(parts, kOutsideShare, &sampler));
  TANDEM_ASSIGN_OR_RETURN(measured.prefill_attention,
                          MeasurePrefillAttention(parts, kPrefillShare, &sampler));
  double linear_share = kLinearShare;
  if (parts.decoder->collective() != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(measured.all_reduce, MeasureAllReduce(parts, kAllReduceShare, &sampler));
    linear_share -= kAllReduceShare;
  }
  TANDEM_ASSIGN_OR_RETURN(measured.linear, MeasureLinear(parts, linear_share, &sampler));
  if (options.progress) options.progress(1, "done");
  return CostTable::Create(std::move(measured));
}

ProfileKey MakeProfileKey(const ProfileParts& parts, int64_t sm_limit) {
  const ModelConfig& config = parts.decoder->config();
  ProfileKey key;
  key.num_layers = config.num_layers;
  key.hidden_size = config.hidden_size;
  key.intermediate_size = config.intermediate_size;
  key.num_heads = config.num_heads;
  key.num_kv_heads = config.num_kv_heads;
  key.head_dim = config.head_dim;
  key.vocab_size = config.vocab_size;
  key.sliding_window = config.sliding_window;
  key.num_shards = static_cast<int64_t>(parts.others.size()) + 1;
  key.dtype = DTypeName(parts.decoder->dtype());
  key.weights = parts.decoder->weights().Describe();
  key.gpu_kv = KvFormatName(parts.memory->layout(Tier::kGpu).shape.format);
  key.device = DeviceName(*parts.device);
  key.gpu_sm_limit = sm_limit;
  if (parts.cpu_attention != nullptr) {
    key.cpu_kv = KvFormatName(parts.memory->layout(Tier::kCpu).shape.format);
    key.cpu_threads = parts.cpu_attention->num_threads();
    key.cpu_isa = parts.cpu_attention->Description();
  }
  return key;
}

ProfileCoverage MakeProfileCoverage(const ProfileParts& parts) {
  const auto tokens = [&](Tier tier) { return parts.books->total_blocks(tier) * parts.books->block_size(); };
  return {.max_rows = parts.max_rows,
          .max_context = parts.max_context,
          .gpu_kv_tokens = tokens(Tier::kGpu),
          .cpu_kv_tokens = parts.cpu_attention != nullptr ? tokens(Tier::kCpu) : 0};
}

Result<CostTable> LoadOrMeasureCosts(const ProfileParts& parts, const ProfileKey& key,
                                     const LoadOrMeasureOptions& options) {
  const ProfileCoverage coverage = MakeProfileCoverage(parts);
  const std::string path = options.folder.empty() ? std::string() : ProfilePath(options.folder, key);
  if (!path.empty() && !options.measure) {
    auto table = ReadProfile(path, key, coverage);
    if (table.ok()) {
      LogInfo("costs: {}", path);
      return table;
    }
    if (table.error().code != ErrorCode::kNotFound) LogWarn("{}; measured anew", table.error().message);
  }
  const auto begin = std::chrono::steady_clock::now();
  LogInfo("measuring what the parts of an iteration cost");
  TANDEM_ASSIGN_OR_RETURN(CostTable table, Profile(parts, options.profile));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (path.empty()) {
    LogInfo("costs measured in {:.1f} s", seconds);
    return table;
  }
  const Status written = WriteProfile(path, key, coverage, table.measurements());
  if (written.ok()) {
    LogInfo("costs measured in {:.1f} s: {}", seconds, path);
  } else {
    LogWarn("the measured costs are not kept: {}", written.error().message);
  }
  return table;
}

}  // namespace tandem
