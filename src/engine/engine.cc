#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/param_error.h"
#include "base/timeline.h"
#include "engine/cache_sizing.h"
#include "engine/engine_loop.h"
#include "engine/loaded_model.h"
#include "execute/executor.h"
#include "kv/tiered_cache.h"
#include "schedule/strategy.h"

namespace tandem {
namespace {

// Some hundred iterations of a large model.
constexpr size_t kMaxTimelineSpans = 200'000;

class EngineWithLoop : public Engine {
 public:
  explicit EngineWithLoop(EngineOptions options) : options_(std::move(options)) {}
  ~EngineWithLoop() override {
    loop_.reset();
    if (!timeline_) return;
    const Status written = timeline_->WriteChromeTrace(options_.timeline);
    if (!written.ok()) LogError("timeline: {}", written.error().message);
  }
  EngineWithLoop(const EngineWithLoop&) = delete;
  EngineWithLoop& operator=(const EngineWithLoop&) = delete;

  Status Load() {
    TANDEM_ASSIGN_OR_RETURN(strategy_, CreateStrategy(options_.strategy));
    TANDEM_ASSIGN_OR_RETURN(model_, LoadModel(&options_));
    const ModelConfig& config = model_.decoder->config();
    Device* device = model_.backend.device.get();
    if (!model_.backend.has_cpu_tier && options_.cpu_kv_cache) {
      return MakeParamError(ErrorCode::kUnsupported, "cpu-kv-cache",
                            "the {} backend keeps all KV in the gpu tier", device->backend());
    }
    // Known only now: limits depend on the model.
    std::erase_if(model_.backend.graph_batch_sizes,
                  [this](int64_t size) { return size > options_.max_num_seqs; });
    if (!options_.timeline.empty()) timeline_ = std::make_unique<Timeline>(kMaxTimelineSpans);
    const ExecutorOptions executor_options = {.max_rows = options_.max_num_batched_tokens,
                                              .cpu_attention = {.num_threads = options_.cpu_threads},
                                              .graph_batch_sizes = model_.backend.graph_batch_sizes,
                                              .timeline = timeline_.get()};
    TANDEM_ASSIGN_OR_RETURN(
        const TieredCacheOptions cache_options,
        SizeCache(options_, config, model_.decoder->dtype(), *device,
                  Executor::BytesFor(*model_.decoder, executor_options) + model_.backend.workspace_bytes));
    TANDEM_ASSIGN_OR_RETURN(cache_, TieredCache::Create(device, cache_options));
    // Any single request must be able to run alone.
    const int64_t gpu_tokens = cache_options.gpu_blocks * cache_options.shape.block_size;
    if (gpu_tokens < options_.max_model_len) {
      LogWarn("the gpu tier holds {} tokens: requests are limited to that instead of {}", gpu_tokens,
              options_.max_model_len);
      options_.max_model_len = gpu_tokens;
    }
    TANDEM_ASSIGN_OR_RETURN(
        executor_, Executor::Create(device, model_.backend.ops.get(), model_.decoder.get(), cache_.get(),
                                    executor_options));
    executor_->WarmUp();
    EngineLoopOptions loop_options;
    loop_options.limits = {.max_num_seqs = options_.max_num_seqs,
                           .max_num_batched_tokens = options_.max_num_batched_tokens,
                           .reserve_blocks = std::max<int64_t>(1, cache_options.gpu_blocks / 100)};
    loop_options.num_layers = config.num_layers;
    loop_options.vocab_size = config.vocab_size;
    loop_options.max_model_len = options_.max_model_len;
    loop_options.max_num_queued_reqs = options_.max_num_queued_reqs;
    loop_options.eos_token_ids = model_.generation_defaults.eos_token_ids;
    loop_options.seed = options_.seed;
    loop_options.timeline = timeline_.get();
    loop_ = std::make_unique<EngineLoop>(loop_options, strategy_.get(), cache_.get(), executor_.get());
    LogInfo("{}: {} layers, {}, {} MiB of weights, gpu tier {} tokens, cpu tier {} tokens, strategy {}, {}",
            options_.served_model_name, config.num_layers, DTypeName(model_.decoder->dtype()),
            model_.decoder->weights().size_bytes >> 20, gpu_tokens,
            cache_options.cpu_blocks * cache_options.shape.block_size, strategy_->name(),
            device->Description());
    return {};
  }

  Result<RequestId> Submit(RequestSpec spec, OutputCallback callback) override {
    return loop_->Submit(std::move(spec), std::move(callback));
  }
  void Cancel(RequestId id) override { loop_->Cancel(id); }
  void Drain() override { loop_->Drain(); }
  void CancelAll() override { loop_->CancelAll(); }
  EngineStats Stats() const override { return loop_->Stats(); }
  const EngineOptions& options() const override { return options_; }
  const ModelConfig& model_config() const override { return model_.decoder->config(); }
  const GenerationDefaults& generation_defaults() const override { return model_.generation_defaults; }
  const Tokenizer& tokenizer() const override { return *model_.tokenizer; }
  const ChatTemplate* chat_template() const override { return model_.chat_template.get(); }
  int64_t max_model_len() const override { return options_.max_model_len; }
  std::string device_description() const override { return model_.backend.device->Description(); }

 private:
  // Destroyed in reverse: first the loop's thread ends, then the executor's streams, last the memory.
  EngineOptions options_;
  std::unique_ptr<Timeline> timeline_;  // null: none is wanted
  LoadedModel model_;
  std::unique_ptr<TieredCache> cache_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  auto engine = std::make_unique<EngineWithLoop>(options);
  TANDEM_RETURN_IF_ERROR(engine->Load());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace tandem
