#include "model/dummy_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "device/host/host_device.h"
#include "load/dummy_models.h"
#include "model/shard_weights_testing.h"
#include "model/weight_product_testing.h"
#include "ops/ops.h"

namespace tandem {
namespace {

class DummyWeightsTest : public testing::Test {
 protected:
  DecoderWeights Make(const ModelConfig& config, uint64_t seed) {
    auto weights =
        MakeDummyWeights(config, device_.get(), ops_.get(),
                         {.dtype = DType::kF32, .max_model_len = 64, .seed = seed, .show_progress = false});
    EXPECT_TRUE(weights.ok()) << weights.error().message;
    return std::move(weights).value();
  }

  std::vector<float> Product(const LinearWeight& weight) {
    return WeightProduct(ops_.get(), stream_.get(), weight);
  }

  const std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 2});
  const std::unique_ptr<Ops> ops_ = CreateHostOps();
  const std::unique_ptr<Stream> stream_ = device_->CreateStream(StreamKind::kCompute, "test");
  const ModelConfig tiny_ = *DummyModelConfig("tiny");
};

TEST_F(DummyWeightsTest, HaveTheShapesOfTheConfiguration) {
  ModelConfig config = tiny_;
  config.qk_norm = true;
  const DecoderWeights weights = Make(config, 1);
  ASSERT_EQ(static_cast<int64_t>(weights.layers.size()), config.num_layers);
  EXPECT_EQ(weights.embedding.rows, config.vocab_size);
  EXPECT_EQ(weights.embedding.cols, config.hidden_size);
  EXPECT_EQ(weights.rope_table.size_bytes(), 64 * static_cast<size_t>(config.head_dim) * sizeof(float));
  EXPECT_EQ(weights.lm_head->out_features(), config.vocab_size);
  for (const LayerWeights& layer : weights.layers) {
    EXPECT_EQ(layer.qkv->out_features(), (config.num_heads + 2 * config.num_kv_heads) * config.head_dim);
    EXPECT_EQ(layer.output->in_features(), config.num_heads * config.head_dim);
    EXPECT_EQ(layer.gate_up->out_features(), 2 * config.intermediate_size);
    EXPECT_EQ(layer.down->in_features(), config.intermediate_size);
    EXPECT_EQ(layer.q_norm.size_bytes(), static_cast<size_t>(config.head_dim) * sizeof(float));
    for (int64_t i = 0; i < config.hidden_size; ++i) ASSERT_EQ(layer.mlp_norm.as<float>()[i], 1.0F);
  }
}

// Two shards with a KV head each, four of which two have the same one.
TEST_F(DummyWeightsTest, DoNotDependOnTheNumberOfShards) {
  for (const Quantization quantization : {Quantization::kAuto, Quantization::kInt4, Quantization::kFp8}) {
    const auto make = [&](Shard shard) {
      auto weights = MakeDummyWeights(tiny_, device_.get(), ops_.get(),
                                      {.shard = shard,
                                       .dtype = DType::kF32,
                                       .quantization = quantization,
                                       .max_model_len = 64,
                                       .seed = 5,
                                       .show_progress = false});
      EXPECT_TRUE(weights.ok()) << weights.error().message;
      return std::move(weights).value();
    };
    const DecoderWeights whole = make({});
    for (const int num_shards : {2, 4}) {
      // 64 columns of the output projection are no group of 128.
      if (quantization == Quantization::kInt4 && num_shards == 4) continue;
      std::vector<DecoderWeights> shards;
      shards.reserve(static_cast<size_t>(num_shards));
      for (int rank = 0; rank < num_shards; ++rank)
        shards.push_back(make({.rank = rank, .size = num_shards}));
      ExpectShardsAreTheWhole(tiny_, whole, shards, ops_.get(), stream_.get());
      if (quantization != Quantization::kAuto) continue;
      const int64_t rows = tiny_.vocab_size / num_shards;
      for (int rank = 0; rank < num_shards; ++rank) {
        const MatrixView& part = shards[static_cast<size_t>(rank)].embedding;
        ASSERT_EQ(part.rows, rows);
        EXPECT_EQ(std::memcmp(part.data, whole.embedding.RowData(rank * rows),
                              static_cast<size_t>(rows * tiny_.hidden_size) * sizeof(float)),
                  0);
      }
    }
  }
}

TEST_F(DummyWeightsTest, AreAFunctionOfTheSeed) {
  const DecoderWeights first = Make(tiny_, 1);
  const DecoderWeights again = Make(tiny_, 1);
  const DecoderWeights other = Make(tiny_, 2);
  EXPECT_EQ(Product(*first.layers[0].down), Product(*again.layers[0].down));
  EXPECT_NE(Product(*first.layers[0].down), Product(*other.layers[0].down));
  EXPECT_EQ(std::memcmp(first.embedding.data, again.embedding.data, first.embedding_memory.size_bytes()), 0);
}

TEST_F(DummyWeightsTest, DifferFromTensorToTensorAndHaveThePublishedSpread) {
  const DecoderWeights weights = Make(tiny_, 1);
  EXPECT_NE(Product(*weights.layers[0].qkv), Product(*weights.layers[1].qkv));
  EXPECT_NE(Product(*weights.lm_head), Product(*weights.layers[0].gate_up));
  double sum_of_squares = 0;
  const int64_t count = tiny_.vocab_size * tiny_.hidden_size;
  for (int64_t i = 0; i < count; ++i) {
    const double value = weights.embedding_memory.as<float>()[i];
    sum_of_squares += value * value;
  }
  EXPECT_NEAR(std::sqrt(sum_of_squares / static_cast<double>(count)), 0.02, 1e-4);
}

TEST_F(DummyWeightsTest, ATiedHeadIsTheEmbedding) {
  ModelConfig config = tiny_;
  for (const bool tied : {true, false}) {
    config.tie_word_embeddings = tied;
    const DecoderWeights weights = Make(config, 1);
    const std::vector<float> logits = Product(*weights.lm_head);
    double largest_difference = 0;
    for (int64_t row = 0; row < config.vocab_size; ++row) {
      double expected = 0;
      for (int64_t i = 0; i < config.hidden_size; ++i) {
        expected += static_cast<double>(weights.embedding_memory.as<float>()[row * config.hidden_size + i]) *
                    std::cos(static_cast<float>(i));
      }
      largest_difference =
          std::max(largest_difference, std::abs(expected - logits[static_cast<size_t>(row)]));
    }
    if (tied) {
      EXPECT_LT(largest_difference, 1e-5);
    } else {
      EXPECT_GT(largest_difference, 0.1);
    }
  }
}

TEST_F(DummyWeightsTest, BiasesChangeNothing) {
  ModelConfig config = tiny_;
  const std::vector<float> without = Product(*Make(config, 1).layers[0].qkv);
  config.qkv_bias = true;
  EXPECT_EQ(Product(*Make(config, 1).layers[0].qkv), without);
}

TEST_F(DummyWeightsTest, MayBeCodes) {
  for (const bool tied : {true, false}) {
    ModelConfig config = tiny_;
    config.tie_word_embeddings = tied;
    const auto make = [&](Quantization quantization) {
      return MakeDummyWeights(
          config, device_.get(), ops_.get(),
          {.quantization = quantization, .max_model_len = 64, .seed = 1, .show_progress = false});
    };
    const auto four = make(Quantization::kInt4);
    ASSERT_TRUE(four.ok()) << four.error().message;
    EXPECT_EQ(four->layers[1].down->format(), Int4Format(128, true));
    EXPECT_EQ(four->lm_head->format(), Int8Format(128, false));
    EXPECT_EQ(four->quantized_embedding == four->lm_head.get(), tied);
    EXPECT_EQ(Product(*four->layers[0].qkv), Product(*make(Quantization::kInt4)->layers[0].qkv));
    EXPECT_NE(Product(*four->layers[0].qkv), Product(*four->layers[1].qkv));
    const auto eight = make(Quantization::kInt8);
    ASSERT_TRUE(eight.ok()) << eight.error().message;
    EXPECT_EQ(eight->Describe(), "int8, groups of 128");
    EXPECT_LT(four->size_bytes, eight->size_bytes);
    const auto fp8 = make(Quantization::kFp8);
    ASSERT_TRUE(fp8.ok()) << fp8.error().message;
    EXPECT_EQ(fp8->layers[1].down->format(), Fp8Format(config.intermediate_size));
    EXPECT_EQ(fp8->lm_head->format(), Fp8Format(config.hidden_size));
    EXPECT_LT(fp8->size_bytes, eight->size_bytes) << "a scale a row";
  }
}

TEST_F(DummyWeightsTest, SayWhatTheBackendDoesNotMultiply) {
  ModelConfig config = tiny_;
  config.intermediate_size = 520;
  const auto weights =
      MakeDummyWeights(config, device_.get(), ops_.get(),
                       {.quantization = Quantization::kInt4, .max_model_len = 64, .show_progress = false});
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.error().param, "quantization");
  EXPECT_EQ(weights.error().message,
            "the host backend does not multiply int4 weights with rows of 520 at fp32");
}

}  // namespace
}  // namespace tandem
