#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/param_error.h"
#include "base/round_up.h"
#include "base/timeline.h"
#include "cpu_attention/task_order.h"
#include "engine/cache_sizing.h"
#include "engine/cpu_kernel_choice.h"
#include "engine/engine_loop.h"
#include "engine/live_watch.h"
#include "engine/loaded_model.h"
#include "engine/longest_context.h"
#include "engine/shards.h"
#include "execute/executor.h"
#include "execute/worker_group.h"
#include "kv/kv_books.h"
#include "kv/kv_memory.h"
#include "kv_events/kv_event_publisher.h"
#include "perf/corrected_costs.h"
#include "policy/strategy.h"
#include "profile/profile_report.h"
#include "profile/profiler.h"
#include "simd/cpu_isa.h"

namespace tandem {
namespace {

// Some hundred iterations of a large model.
constexpr size_t kMaxTimelineSpans = 200'000;

Result<TaskOrder> ParseTaskOrder(std::string_view name) {
  if (name == "wanted") return TaskOrder::kWanted;
  if (name == "arming") return TaskOrder::kArming;
  return MakeParamError(ErrorCode::kInvalidArgument, "cpu-attention-order",
                        "'{}' is neither wanted nor arming", name);
}

// Absent: it is not said.
Result<std::optional<CpuIsa>> ParseCpuAttentionIsa(std::string_view name) {
  if (name.empty()) return std::optional<CpuIsa>();
  std::string supported;
  for (const CpuIsa isa : SupportedCpuIsas()) {
    if (CpuIsaShortName(isa) == name) return std::optional(isa);
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", CpuIsaShortName(isa));
  }
  return MakeParamError(ErrorCode::kUnsupported, "cpu-attention-isa",
                        "'{}' is nothing that this processor has: {}", name, supported);
}

class EngineWithLoop : public Engine {
 public:
  EngineWithLoop(EngineOptions options, MakeStrategy make_strategy)
      : options_(std::move(options)), make_strategy_(std::move(make_strategy)) {}
  ~EngineWithLoop() override {
    loop_.reset();
    if (costs_) {
      LogDebug(
          "iterations took {:.2f} (graphs), {:.2f} (op by op), with riders {:.2f} (graphs), {:.2f} (op by "
          "op), "
          "hybrid ones {:.2f} of the measured costs, CPU attention {:.2f}",
          costs_->gpu_factor(IterationMode::kGraph), costs_->gpu_factor(IterationMode::kOpByOp),
          costs_->gpu_factor(IterationMode::kGraphWithRiders),
          costs_->gpu_factor(IterationMode::kOpByOpWithRiders), costs_->gpu_factor(IterationMode::kHybrid),
          costs_->cpu_factor());
    }
    if (options_.timeline.empty() || !timeline_) return;
    const Status written = timeline_->WriteChromeTrace(options_.timeline);
    if (!written.ok()) LogError("timeline: {}", written.error().message);
  }
  EngineWithLoop(const EngineWithLoop&) = delete;
  EngineWithLoop& operator=(const EngineWithLoop&) = delete;

  Status Load() {
    if (options_.prefix_caching) {
      TANDEM_ASSIGN_OR_RETURN(prefix_key_, MakeBlockHashKey(options_.prefix_cache_key));
    }
    TANDEM_RETURN_IF_ERROR(StartKvEvents());
    TANDEM_ASSIGN_OR_RETURN(model_, LoadModel(&options_));
    // Known only now: limits depend on the model.
    std::erase_if(model_.backend.graph_batch_sizes,
                  [this](int64_t size) { return size > options_.max_num_seqs; });
    const size_t max_spans = static_cast<size_t>(model_.num_shards) * kMaxTimelineSpans;
    timeline_ = std::make_unique<Timeline>(options_.timeline.empty() ? 0 : max_spans);
    TANDEM_RETURN_IF_ERROR(UseNamedStrategy());
    TANDEM_RETURN_IF_ERROR(CreateCacheAndExecutor());
    TANDEM_RETURN_IF_ERROR(CreateScheduler());
    StartLoop();
    return {};
  }

  Result<RequestId> Submit(RequestSpec spec, OutputCallback callback) override {
    return loop_->Submit(std::move(spec), std::move(callback));
  }
  Result<RequestId> SubmitBegun(RequestSpec spec, int64_t num_made_tokens, OutputCallback callback) override {
    return loop_->SubmitBegun(std::move(spec), num_made_tokens, std::move(callback));
  }
  void Cancel(RequestId id) override { loop_->Cancel(id); }
  void ForgetPrefixes() override { loop_->ForgetPrefixes(); }
  void Drain() override { loop_->Drain(); }
  void CancelAll() override { loop_->CancelAll(); }
  Status UseStrategy(const std::string& name, int64_t async_cohorts, Learned learned) override {
    std::unique_ptr<CorrectedCosts> costs;
    if (cost_table_) costs = std::make_unique<CorrectedCosts>(&*cost_table_);
    if (costs_ && learned == Learned::kKeep) *costs = *costs_;
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Strategy> strategy,
                            CreateStrategy(EffectiveName(name), costs.get()));
    TANDEM_RETURN_IF_ERROR(CheckServes(*strategy));
    loop_->CancelAll();
    const EngineStats stats = loop_->Stats();
    if (stats.cpu_blocks_free != stats.cpu_blocks_total)
      return MakeError(ErrorCode::kUnavailable,
                       "CPU attention does not answer, and may still use its blocks");
    loop_.reset();
    options_.strategy = name;
    options_.async_cohorts = async_cohorts;
    strategy_ = std::move(strategy);
    costs_ = std::move(costs);
    LimitContext();
    StartLoop();
    return {};
  }
  EngineStats Stats() const override {
    EngineStats stats = loop_->Stats();
    if (kv_events_) {
      const KvEventCounts counts = kv_events_->counts();
      stats.kv_events = counts.events;
      stats.kv_events_dropped = counts.dropped_events;
    }
    return stats;
  }
  void Watch(bool watched) override {
    live_.Watch(watched);
    timeline_->Watch(watched);
  }
  std::shared_ptr<const LiveView> Live() const override { return live_.View(); }
  std::vector<TimelineSpan> LastIteration() const override { return timeline_->LastIteration(); }
  const EngineOptions& options() const override { return options_; }
  const ModelConfig& model_config() const override { return model_.config; }
  const GenerationDefaults& generation_defaults() const override { return model_.generation_defaults; }
  const Tokenizer& tokenizer() const override { return *model_.tokenizer; }
  const ChatTemplate* chat_template() const override { return model_.chat_template.get(); }
  int64_t max_model_len() const override { return options_.max_model_len; }
  std::string device_description() const override { return model_.backend.Description(); }
  double layer_weight_bytes() const override {
    double bytes = 0;
    for (const auto& shard : model_.shards) bytes += shard->weights().LayerBytes();
    return model_.OfAll(bytes);
  }
  double head_weight_bytes() const override {
    double bytes = 0;
    for (const auto& shard : model_.shards)
      bytes += static_cast<double>(shard->weights().lm_head->size_bytes());
    return model_.OfAll(bytes);
  }
  const CostTable* cost_table() const override { return cost_table_ ? &*cost_table_ : nullptr; }
  std::unique_ptr<LayerCosts> LearnedCosts() const override {
    return costs_ ? std::make_unique<CorrectedCosts>(*costs_) : nullptr;
  }
  int64_t kv_token_bytes(Tier tier) const override {
    const TierLayout& layout = kv_memories_.front()->layout(tier);
    return model_.num_shards * layout.num_layers * static_cast<int64_t>(layout.shape.TokenBytes());
  }
  const KvFormat& kv_format(Tier tier) const override { return model_.kv_formats.of(tier); }
  const ScheduleLimits& schedule_limits() const override { return loop_->limits(); }
  std::optional<Error> failure() const override {
    const CollectiveGroup* const exchange = model_.exchange();
    return exchange == nullptr ? std::nullopt : exchange->failure();
  }

 private:
  Status StartKvEvents() {
    if (!options_.kv_events) return {};
    if (!options_.prefix_caching) LogWarn("no KV events are published: nothing is cached");
    TANDEM_ASSIGN_OR_RETURN(kv_events_, KvEventPublisher::Start(*options_.kv_events));
    LogInfo("KV events are published at {}{}", kv_events_->endpoint(),
            options_.kv_events->replay_endpoint ? ", and again at " + kv_events_->replay_endpoint() : "");
    return {};
  }

  // Where both tiers lie in the same memory a cpu tier is of no use to anybody who has not asked for one.
  std::string_view EffectiveName(std::string_view strategy) const {
    const bool one_tier = model_.backend.device->KindsShareMemory() && !options_.cpu_kv_cache;
    return strategy == "auto" && one_tier ? "gpu-only" : strategy;
  }
  // By the costs that are known now: none before they are measured, which what it can do does not need.
  Status UseNamedStrategy() {
    const std::string_view name = EffectiveName(options_.strategy);
    TANDEM_ASSIGN_OR_RETURN(
        strategy_, make_strategy_ ? make_strategy_(costs_.get()) : CreateStrategy(name, costs_.get()));
    return {};
  }
  bool uses_cpu_tier() const { return strategy_->uses_cpu_tier(); }

  Status CreateCacheAndExecutor() {
    const Decoder& shard = model_.first_shard();
    const ModelConfig& config = shard.config();
    TANDEM_ASSIGN_OR_RETURN(const TaskOrder task_order, ParseTaskOrder(options_.cpu_attention_order));
    const bool cpu_tier = uses_cpu_tier() || options_.cpu_kv_cache.has_value();
    TANDEM_ASSIGN_OR_RETURN(const std::optional<CpuIsa> isa,
                            ParseCpuAttentionIsa(options_.cpu_attention_isa));
    AttentionChoice kernels =
        ChooseCpuKernels(options_, config, shard.dtype(), model_.kv_formats, cpu_tier, &model_.backend);
    if (isa && kernels.isa != *isa) kernels = {.isa = *isa};
    // As they pass through the device.
    const KvShape kv_shape = {
        .format = model_.kv_formats.gpu, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
    const int64_t transit_tokens = TransitTokens(options_, KvShapeOfAll(kv_shape.format));
    if (transit_tokens < kv_shape.block_size) {
      return MakeParamError(
          ErrorCode::kInvalidArgument, "kv-transit",
          "--kv-transit is too small: one block of {} tokens takes {} bytes in each of 2 slots",
          kv_shape.block_size, KvShapeOfAll(kv_shape.format).BlockBytes());
    }
    executor_options_ = {.max_rows = options_.max_num_batched_tokens,
                         .max_context = options_.max_model_len,
                         .cpu_attention = {.num_threads = options_.cpu_threads,
                                           .leave_cores = model_.backend.leave_cores,
                                           .spin_us = model_.backend.cpu_attention_spin_us,
                                           .isa = kernels.isa,
                                           .fetch = kernels.fetch,
                                           .most_readers = kernels.most_readers,
                                           .order = task_order},
                         .max_cpu_rows = std::min(options_.max_num_seqs, options_.max_num_batched_tokens),
                         .max_rider_rows = MaxRiderRows(),
                         .max_flight_rows = options_.max_num_seqs,
                         .max_transit_tokens = transit_tokens,
                         .stall_timeout = std::chrono::milliseconds(options_.cpu_stall_timeout_ms),
                         .graph_batch_sizes = model_.backend.graph_batch_sizes,
                         .graph_rider_rows = GraphRiderRows(),
                         .timeline = timeline_.get()};
    size_t shard_bytes = Executor::BytesFor(shard, executor_options_, cpu_tier ? &kv_shape : nullptr);
    // Of the shard that is measured alone.
    if (model_.processes != nullptr) shard_bytes += Executor::LogitsBytesFor(shard, executor_options_);
    const size_t reserved_bytes =
        static_cast<size_t>(model_.num_shards) * shard_bytes +
        static_cast<size_t>(model_.backend.num_devices()) *
            (model_.backend.workspace_bytes + model_.backend.ops->UnallocatedBytes()) +
        AttentionBytes(transit_tokens);
    TANDEM_RETURN_IF_ERROR(CreateCache(reserved_bytes));
    wanted_model_len_ = options_.max_model_len;
    LimitContext();
    if (options_.prefix_caching) {
      // Far more than any batch has; kernels count places of tables in 32 bits.
      constexpr int64_t kMostTableBlocks = int64_t{1} << 22;
      const int64_t of_a_sequence = std::min(kv_books_->total_blocks(Tier::kGpu),
                                             DivideUp(options_.max_model_len, kv_books_->block_size()));
      executor_options_.max_table_blocks = std::min(kMostTableBlocks, options_.max_num_seqs * of_a_sequence);
    }
    TANDEM_ASSIGN_OR_RETURN(workers_, CreateWorkerGroup(model_, kv_memories_, executor_options_));
    workers_->WarmUp();
    return {};
  }

  // Whether a strategy finds what it needs.
  Status CheckServes(const Strategy& strategy) const {
    std::string_view lacks;
    if (strategy.uses_cpu_tier() && (kv_books_->total_blocks(Tier::kCpu) == 0 || !costs_)) {
      lacks = "needs a cpu tier, which the engine was started without";
    } else if (strategy.rides() && executor_options_.max_rider_rows == 0) {
      lacks = "needs room for riders, which the engine was started without";
    }
    if (lacks.empty()) return {};
    return MakeParamError(ErrorCode::kUnsupported, "strategy", "strategy '{}' {}", strategy.name(), lacks);
  }

  // 0 where no strategy lets any ride.
  int64_t MaxRiderRows() const {
    if (!strategy_->rides()) return 0;
    const int64_t rows =
        options_.max_rider_rows > 0 ? options_.max_rider_rows : model_.backend.max_rider_rows;
    return std::min({rows, options_.max_num_seqs, options_.max_num_batched_tokens});
  }

  std::vector<int64_t> GraphRiderRows() const {
    std::vector<int64_t> row_counts = model_.backend.graph_rider_rows;
    std::erase_if(row_counts, [most = MaxRiderRows()](int64_t rows) { return rows > most; });
    return row_counts;
  }

  // Of all shards' blocks together.
  KvShape KvShapeOfAll(const KvFormat& format) const {
    return {.format = format, .num_kv_heads = model_.num_kv_heads(), .head_dim = model_.config.head_dim};
  }

  // Of plans of attention over the gpu tier, or through the transit, for contexts of so many tokens, a plan a
  // device.
  size_t AttentionBytes(int64_t num_tokens) const {
    const ModelConfig& config = model_.first_shard().config();
    const KvShape kv = {
        .format = model_.kv_formats.gpu, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
    const size_t of_one =
        model_.backend.ops->AttentionBytes({.max_blocks = DivideUp(num_tokens, kv.block_size),
                                            .max_context = num_tokens,
                                            .kv = kv,
                                            .coded_rows = model_.first_shard().dtype(),
                                            .num_heads = config.num_heads});
    return static_cast<size_t>(model_.backend.num_devices()) * of_one;
  }

  Status CreateCache(size_t reserved_bytes) {
    const FreeMemory memory = model_.backend.free_memory();
    size_t attention_bytes = 0;
    ModelConfig of_all = model_.config;
    of_all.num_kv_heads = model_.num_kv_heads();
    const auto size = [&] {
      return SizeCache(options_, of_all, model_.kv_formats, memory, reserved_bytes + attention_bytes);
    };
    TANDEM_ASSIGN_OR_RETURN(KvCacheOptions cache_options, size());
    // No context is longer than the tier that there would be without what it takes.
    const int64_t tier_tokens = cache_options.gpu.num_blocks * cache_options.gpu.shape.block_size;
    attention_bytes = AttentionBytes(std::min(options_.max_model_len, tier_tokens));
    if (attention_bytes > 0) {
      TANDEM_ASSIGN_OR_RETURN(cache_options, size());
    }
    if (uses_cpu_tier() && !options_.cpu_kv_cache) {
      const auto gpu_bytes =
          static_cast<int64_t>(cache_options.LayoutOf(Tier::kGpu).TotalBytes().value_or(0));
      options_.cpu_kv_cache =
          CacheSize{.unit = CacheSize::Unit::kBytes, .amount = DefaultCpuCacheBytes(memory, gpu_bytes)};
      TANDEM_ASSIGN_OR_RETURN(cache_options, size());
    }
    TANDEM_ASSIGN_OR_RETURN(kv_memories_, CreateShardMemories(model_, cache_options));
    TANDEM_ASSIGN_OR_RETURN(kv_books_,
                            KvBooks::Create(cache_options.gpu.shape.block_size,
                                            {cache_options.gpu.num_blocks, cache_options.cpu.num_blocks}));
    return {};
  }

  int64_t TokensOf(Tier tier) const { return kv_books_->total_blocks(tier) * kv_books_->block_size(); }

  // What is to be said of a tier's type: nothing where it is the model's.
  std::string KvTypeText(Tier tier) const {
    const KvFormat& format = kv_format(tier);
    return format == KvFormat::Plain(model_.first_shard().dtype()) ? "" : " in " + KvFormatName(format);
  }

  void LimitContext() {
    longest_context_ =
        FindLongestContext(wanted_model_len_, TokensOf(Tier::kGpu),
                           uses_cpu_tier() ? TokensOf(Tier::kCpu) : 0, executor_options_.max_transit_tokens);
    options_.max_model_len = longest_context_.tokens;
    if (longest_context_.tokens >= wanted_model_len_) return;
    LogWarn("requests are limited to {} tokens of context instead of {}: {}", longest_context_.tokens,
            wanted_model_len_, longest_context_.why);
  }

  struct MeasuredParts {
    std::unique_ptr<Decoder> decoder;  // these two null where the engine's own are measured
    std::unique_ptr<LogitsStage> logits;
    ProfileParts parts;
  };
  Result<MeasuredParts> PartsToMeasure() {
    const MeasurementParts executor = workers_->rank0().measurement_parts();
    MeasuredParts measured;
    measured.parts = {.device = model_.backend.device.get(),
                      .ops = model_.backend.ops.get(),
                      .decoder = &model_.first_shard(),
                      .books = kv_books_.get(),
                      .memory = kv_memories_.front().get(),
                      .cpu_attention = workers_->cpu_attention(),
                      .compute = executor.compute,
                      .copy = executor.copy,
                      .rows = executor.rows,
                      .plan = executor.plan,
                      .logits = executor.logits,
                      .max_rows = options_.max_num_batched_tokens,
                      .max_context = options_.max_model_len};
    if (model_.processes == nullptr) {
      measured.parts.others = OtherShardParts(model_, kv_memories_, *workers_);
      measured.parts.on_all = [this](const std::function<void(size_t rank)>& work) { workers_->OnAll(work); };
      return measured;
    }
    // Shards of other processes measure nothing: this one alone, as if the others took no time.
    measured.decoder = std::make_unique<Decoder>(model_.first_shard().Alone());
    TANDEM_ASSIGN_OR_RETURN(
        measured.logits,
        LogitsStage::Create(measured.parts.device, measured.decoder.get(), measured.parts.ops,
                            executor.rows->max_rows(), executor.logits->slice_rows()));
    measured.parts.decoder = measured.decoder.get();
    measured.parts.logits = measured.logits.get();
    return measured;
  }

  Status CreateScheduler() {
    const bool needs_costs = uses_cpu_tier() || options_.max_itl_ms > 0 || options_.measure_costs;
    if (needs_costs || model_.backend.measures_costs) {
      TANDEM_ASSIGN_OR_RETURN(const MeasuredParts measured, PartsToMeasure());
      const ProfileParts& parts = measured.parts;
      std::string_view last_what;
      TANDEM_ASSIGN_OR_RETURN(
          CostTable table,
          LoadOrMeasureCosts(parts, MakeProfileKey(parts, options_.gpu_sm_limit),
                             {.folder = model_.backend.cache_folder,
                              .measure = options_.measure_costs,
                              .profile = {.budget_seconds = options_.profile_seconds,
                                          .progress = [&](double share, std::string_view what) {
                                            if (what == last_what) return;
                                            last_what = what;
                                            LogInfo("measuring what an iteration costs here: {:.0f} %, {}",
                                                    100 * share, what);
                                          }}}));
      cost_table_ = std::move(table);
      costs_ = std::make_unique<CorrectedCosts>(&*cost_table_);
    }
    return UseNamedStrategy();
  }

  void StartLoop() {
    const ModelConfig& config = model_.config;
    const Decoder& shard = model_.first_shard();
    size_t weight_bytes = 0;
    for (const auto& each : model_.shards) weight_bytes += each->weights().size_bytes;
    weight_bytes = model_.OfAll(weight_bytes);
    constexpr double kUsPerMs = 1e3;
    EngineLoopOptions loop_options;
    loop_options.limits = {.max_num_seqs = options_.max_num_seqs,
                           .max_num_batched_tokens = options_.max_num_batched_tokens,
                           .reserve_blocks = std::max<int64_t>(1, kv_books_->total_blocks(Tier::kGpu) / 100),
                           .num_layers = config.num_layers,
                           .max_transit_tokens = executor_options_.max_transit_tokens,
                           .max_cohort_rows = executor_options_.max_cpu_rows,
                           .max_rider_rows = executor_options_.max_rider_rows,
                           .max_riding_cohorts = options_.async_cohorts,
                           .max_iteration_us = options_.max_itl_ms * kUsPerMs,
                           .max_tpot_us = options_.max_tpot_ms * kUsPerMs};
    loop_options.vocab_size = config.vocab_size;
    loop_options.max_model_len = options_.max_model_len;
    loop_options.max_num_queued_reqs = options_.max_num_queued_reqs;
    loop_options.eos_token_ids = model_.generation_defaults.eos_token_ids;
    loop_options.seed = options_.seed;
    loop_options.async_scheduling = options_.async_scheduling;
    loop_options.prefix_key = prefix_key_;
    loop_options.kv_events = kv_events_.get();
    loop_options.timeline = timeline_.get();
    loop_options.live = &live_;
    loop_ = std::make_unique<EngineLoop>(loop_options, model_.backend.device.get(), strategy_.get(),
                                         kv_books_.get(), workers_.get(), costs_.get());
    LogInfo(
        "{}: {} layers, {}, {} MiB of weights ({}), gpu tier {} tokens{}, cpu tier {} tokens{}, longest "
        "context {} "
        "({}), strategy {}, {}{}",
        options_.served_model_name, config.num_layers, DTypeName(shard.dtype()), weight_bytes >> 20,
        shard.weights().Describe(), TokensOf(Tier::kGpu), KvTypeText(Tier::kGpu), TokensOf(Tier::kCpu),
        KvTypeText(Tier::kCpu), longest_context_.tokens, longest_context_.why, strategy_->name(),
        model_.backend.Description(),
        workers_->cpu_attention() == nullptr
            ? ""
            : ", CPU attention: " + workers_->cpu_attention()->Description());
    if (model_.num_shards > 1) {
      LogInfo("{} shards{}, each with its part of these threads{}", model_.num_shards,
              model_.processes == nullptr ? "" : " in processes of their own",
              cost_table_ ? ", and " + DescribeSums(cost_table_->measurements()) : "");
    }
  }

  // Destroyed in reverse: first the loop's thread ends, then the executor's streams, last the memory.
  EngineOptions options_;
  MakeStrategy make_strategy_;    // null: by the name in the options
  int64_t wanted_model_len_ = 0;  // max_model_len before the tiers limited it
  LongestContext longest_context_;
  std::optional<SipHashKey> prefix_key_;         // absent: nothing is cached
  std::unique_ptr<KvEventPublisher> kv_events_;  // null: nobody is told what is
  std::unique_ptr<Timeline> timeline_;           // null before Load
  LiveWatch live_;
  LoadedModel model_;
  ExecutorOptions executor_options_;
  std::vector<std::unique_ptr<KvMemory>> kv_memories_;  // of the shards
  std::unique_ptr<KvBooks> kv_books_;
  std::unique_ptr<WorkerGroup> workers_;
  std::optional<CostTable> cost_table_;
  std::unique_ptr<CorrectedCosts> costs_;  // null: the strategy needs none
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, MakeStrategy make_strategy) {
  auto engine = std::make_unique<EngineWithLoop>(options, std::move(make_strategy));
  TANDEM_RETURN_IF_ERROR(engine->Load());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace tandem
