// Logits of a model in shards against those of the whole one, straight through the decoders.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/round_up.h"
#include "base/sanitizers.h"
#include "collective/shared_memory.h"
#include "conformance/fixtures.h"
#include "device/host/host_device.h"
#include "engine/engine.h"
#include "execute/int_inputs.h"
#include "kv/kv_cache_options.h"
#include "kv/kv_memory.h"
#include "load/checkpoint.h"
#include "load/dummy_models.h"
#include "model/decoder.h"
#include "model/dummy_weights.h"
#include "ops/ops.h"

namespace tandem {
namespace {

constexpr int64_t kMostTokens = 512;

// The shards of one model, each with a stream, driven by one thread.
class ShardedModel {
 public:
  // checkpoint: null for random weights.
  ShardedModel(const ModelConfig& config, const Checkpoint* checkpoint, int num_shards)
      : group_(CreateSharedMemoryGroup({.num_shards = num_shards})) {
    for (int rank = 0; rank < num_shards; ++rank) {
      const Shard shard = {.rank = rank, .size = num_shards};
      DecoderWeights weights =
          checkpoint == nullptr
              ? MakeDummyWeights(config, device_.get(), ops_.get(),
                                 {.shard = shard, .max_model_len = kMostTokens, .show_progress = false})
                    .value()
              : LoadDecoderWeights(*checkpoint, device_.get(), ops_.get(),
                                   {.shard = shard, .max_model_len = kMostTokens, .show_progress = false})
                    .value();
      Part& part = parts_.emplace_back();
      part.decoder = std::make_unique<Decoder>(
          ConfigOf(config, shard), DType::kF32, std::move(weights), ops_.get(),
          ShardedDecoder{.vocab = SlicesOf(config, shard).vocab,
                         .collective = num_shards > 1 ? group_->Of(rank, ShardChannel::kCompute) : nullptr});
      part.stream = device_->CreateStream(StreamKind::kCompute, "shard");
    }
  }

  // Of the last token.
  std::vector<float> LastLogits(const std::vector<int32_t>& prompt) {
    const auto num_rows = static_cast<int64_t>(prompt.size());
    for (Part& part : parts_) Enqueue(prompt, num_rows, &part);
    for (Part& part : parts_) part.stream->Synchronize();
    EXPECT_FALSE(group_->failure());
    // What all shards have, in the end.
    for (const Part& part : parts_) EXPECT_EQ(part.logits, parts_.front().logits);
    return parts_.front().logits;
  }

 private:
  struct Part {
    std::unique_ptr<Decoder> decoder;
    // Of the prompt.
    std::unique_ptr<KvMemory> memory;
    RowBuffers buffers;
    IntInputs inputs;
    std::unique_ptr<AttentionPlan> plan;
    std::vector<float> gathered;
    std::vector<float> logits;
    std::unique_ptr<RowBatch> rows;
    std::unique_ptr<Stream> stream;
  };

  void Enqueue(const std::vector<int32_t>& prompt, int64_t num_rows, Part* part) {
    const ModelConfig& config = part->decoder->config();
    const KvShape shape = {.format = KvFormat::Plain(DType::kF32),
                           .num_kv_heads = config.num_kv_heads,
                           .head_dim = config.head_dim};
    const int64_t num_blocks = DivideUp(num_rows, shape.block_size);
    const KvCacheOptions cache = {.num_layers = config.num_layers,
                                  .gpu = {.shape = shape, .num_blocks = num_blocks},
                                  .cpu = {.shape = shape, .num_blocks = 0}};
    part->memory = KvMemory::Create(device_.get(), cache).value();
    part->buffers = RowBuffers::Allocate(device_.get(), *part->decoder, num_rows).value();
    part->inputs = IntInputs::Allocate(device_.get(), 3 * num_rows + 1).value();
    part->plan = ops_->CreateAttentionPlan({.max_rows = num_rows,
                                            .max_sequences = 1,
                                            .max_blocks = num_blocks,
                                            .kv = shape,
                                            .num_heads = config.num_heads,
                                            .sliding_window = config.sliding_window})
                     .value();
    part->gathered.resize(static_cast<size_t>(config.hidden_size));
    part->logits.assign(static_cast<size_t>(config.vocab_size), 0.0F);
    Stream& stream = *part->stream;
    std::vector<int32_t> table(static_cast<size_t>(num_blocks));
    std::iota(table.begin(), table.end(), 0);
    std::vector<int32_t> places(prompt.size());
    std::iota(places.begin(), places.end(), 0);
    AttentionBatch batch;
    batch.num_rows = num_rows;
    batch.sequences.push_back(
        {.row_begin = 0, .num_rows = num_rows, .context_len = num_rows, .block_table = std::move(table)});
    ops_->PlanAttention(stream, batch, part->plan.get());
    part->rows = std::make_unique<RowBatch>(part->buffers, num_rows);
    RowBatch& rows = *part->rows;
    rows.token_ids = part->inputs.Add(prompt);
    rows.positions = part->inputs.Add(places);
    rows.slots = part->inputs.Add(places);
    const auto last = static_cast<int32_t>(num_rows - 1);
    const int32_t* last_index = part->inputs.Add({&last, 1});
    part->inputs.Upload(stream);
    part->decoder->Embed(stream, &rows);
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      const KvLayerView kv = part->memory->LayerView(Tier::kGpu, layer);
      part->decoder->PreProjection(stream, layer, {{{.row_begin = 0, .num_rows = num_rows, .kv = kv}}},
                                   &rows);
      part->decoder->Attend(stream, *part->plan, kv, 0, num_rows, rows);
      part->decoder->PostProjection(stream, layer, &rows);
    }
    part->decoder->FinalNorm(stream, &rows);
    part->decoder->Logits(stream, rows, last_index,
                          MatrixView::Dense(part->gathered.data(), DType::kF32, 1, config.hidden_size),
                          MatrixView::Dense(part->logits.data(), DType::kF32, 1, config.vocab_size));
  }

  const std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
  const std::unique_ptr<Ops> ops_ = CreateHostOps();
  const std::unique_ptr<CollectiveGroup> group_;
  std::vector<Part> parts_;
};

// Relative to the whole model's, and that two models in as many shards give the same bits.
void ExpectSameLogits(const ModelConfig& config, const Checkpoint* checkpoint, const std::vector<int>& counts,
                      const std::vector<std::vector<int32_t>>& prompts) {
  ShardedModel whole(config, checkpoint, 1);
  for (const int num_shards : counts) {
    ShardedModel sharded(config, checkpoint, num_shards);
    for (const std::vector<int32_t>& prompt : prompts) {
      const std::vector<float> logits = sharded.LastLogits(prompt);
      EXPECT_LT(RelativeDifference(logits, whole.LastLogits(prompt)), 1e-5)
          << num_shards << " shards, " << prompt.size() << " tokens";
      EXPECT_EQ(sharded.LastLogits(prompt), logits) << "another time";
    }
  }
}

std::vector<std::vector<int32_t>> MakeShardPrompts(int32_t vocab_size) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int32_t length : {1, 33, kSanitized ? 40 : 300}) {
    std::vector<int32_t>& prompt = prompts.emplace_back();
    for (int32_t i = 0; i < length; ++i) prompt.push_back((i * 7919 + length) % vocab_size);
  }
  return prompts;
}

TEST(TensorParallelTest, LogitsOfRandomModelsAreThoseOfOneShard) {
  // 4 heads and 2 KV heads.
  const ModelConfig tiny = *DummyModelConfig("tiny");
  ExpectSameLogits(tiny, nullptr, {2, 4}, MakeShardPrompts(static_cast<int32_t>(tiny.vocab_size)));
  // What the shards have of the vocabulary differs; biases, and norms of heads.
  ModelConfig odd = tiny;
  odd.vocab_size = 1021;
  odd.qkv_bias = true;
  odd.output_bias = true;
  odd.mlp_bias = true;
  odd.qk_norm = true;
  odd.tie_word_embeddings = true;
  ExpectSameLogits(odd, nullptr, {2, 4}, MakeShardPrompts(1021));
}

TEST(TensorParallelTest, LogitsOfFamiliesAreThoseOfOneShard) {
  // Biases of Qwen2 that are not zero; 3 heads and one KV head.
  for (const auto& [name, counts] :
       {std::pair{"families/qwen2", std::vector{2, 4}}, std::pair{"families/qwen3", std::vector{2, 4}},
        std::pair{"families/smollm2", std::vector{3}},
        std::pair{"families/llama2/model.gguf", std::vector{2, 4}}}) {
    const auto checkpoint = Checkpoint::Open(FixturePath(name)).value();
    ExpectSameLogits(checkpoint->config(), checkpoint.get(), counts,
                     MakeShardPrompts(static_cast<int32_t>(checkpoint->config().vocab_size)));
  }
}

TEST(TensorParallelTest, LogitsOfTheRealModelAreThoseOfOneShard) {
  const auto path = RealModelPath();
  if (!path) GTEST_SKIP() << "the model file is not here; scripts/fetch_model.sh fetches it";
  const auto checkpoint = Checkpoint::Open(*path).value();
  ExpectSameLogits(checkpoint->config(), checkpoint.get(), {3}, MakeShardPrompts(49'000));
}

TEST(TensorParallelTest, AWrongNumberOfShardsIsOneSentence) {
  const auto refusal = [](EngineOptions options, int64_t num_shards) {
    options.tensor_parallel_size = num_shards;
    options.show_progress = false;
    const auto engine = Engine::Create(options);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? Error{} : engine.error();
  };
  EngineOptions smollm2;
  smollm2.dummy = "smollm2-135m";
  const Error two = refusal(smollm2, 2);
  EXPECT_EQ(two.param, "tensor-parallel-size");
  EXPECT_EQ(two.message,
            "the model's 9 attention heads cannot be cut into 2 shards; tensor-parallel-size may be 1, 3");
  smollm2.gpu_sm_slices = 3;
  EXPECT_EQ(refusal(smollm2, 1).message, "gpu-sm-slices 3 needs --device cuda");
  smollm2.device = "cuda";
  EXPECT_EQ(refusal(smollm2, 9).message, "gpu-sm-slices 3 is not a number of shards, of which there are 9");
  smollm2.gpu_sm_slices = 0;
  smollm2.gpu_sm_limit = 16;
  EXPECT_EQ(
      refusal(smollm2, 3).message,
      "gpu-sm-limit 16 cuts one GPU, and 3 shards have a GPU each; gpu-sm-slices 3 puts them on slices of "
      "one");
  EngineOptions int4;
  int4.dummy = "tiny:int4";
  EXPECT_EQ(refusal(int4, 4).message,
            "the 256 columns of 'layer 0 output' (int4, groups of 128 with minimum) cannot be cut into 4 "
            "shards");
}

}  // namespace
}  // namespace tandem
