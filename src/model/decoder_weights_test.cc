#include "model/decoder_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/host/host_device.h"
#include "load/files_testing.h"
#include "model/shard_weights_testing.h"
#include "model/weight_formats.h"
#include "model/weight_product_testing.h"
#include "ops/ops.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// Blocks of a type with small fp16 numbers in front and any codes behind.
std::string RandomBlocks(GgmlType type, uint64_t num_elements, std::mt19937& random) {
  const BlockFormat& format = GetBlockFormat(type);
  const bool has_minimum = type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1;
  std::string blocks;
  for (uint64_t begin = 0; begin < num_elements; begin += format.block_elements) {
    for (int half = 0; half < (has_minimum ? 2 : 1); ++half) {
      blocks.push_back(static_cast<char>(random()));
      blocks.push_back(static_cast<char>(0x20 + random() % 8));
    }
    const size_t end = (begin / format.block_elements + 1) * format.block_bytes;
    while (blocks.size() < end) blocks.push_back(static_cast<char>(random()));
  }
  return blocks;
}

class DecoderWeightsTest : public testing::Test {
 protected:
  // The tiny llama, some of its tensors in other types.
  std::unique_ptr<Checkpoint> Open(const std::vector<std::pair<std::string, GgmlType>>& types) {
    std::mt19937 random(11);
    std::vector<TinyTensor> tensors = TinyLlamaTensors();
    for (TinyTensor& tensor : tensors) {
      for (const auto& [name, type] : types) {
        if (tensor.name != name + ".weight") continue;
        tensor.type = type;
        tensor.data = RandomBlocks(type, tensor.dims[0] * tensor.dims[1], random);
      }
    }
    return Checkpoint::Open(folder_.Write("model.gguf", TinyLlamaGguf(tensors).bytes())).value();
  }

  Result<DecoderWeights> Load(const Checkpoint& checkpoint, Quantization quantization, Shard shard = {}) {
    return LoadDecoderWeights(checkpoint, device_.get(), ops_.get(),
                              {.shard = shard,
                               .dtype = DType::kF32,
                               .quantization = quantization,
                               .max_model_len = 16,
                               .num_threads = 2,
                               .show_progress = false});
  }

  std::vector<float> Product(const LinearWeight& weight) {
    return WeightProduct(ops_.get(), stream_.get(), weight);
  }

  std::vector<float> Embeddings(const DecoderWeights& weights) {
    const std::vector<int32_t> ids = {3, 0, 9};
    std::vector<float> out(ids.size() * 64);
    ops_->Embedding(*stream_, {.table = weights.embedding,
                               .ids = ids.data(),
                               .out = MatrixView::Dense(out.data(), DType::kF32, 3, 64),
                               .quantized = weights.quantized_embedding});
    stream_->Synchronize();
    return out;
  }

  void ExpectSameValues(const DecoderWeights& a, const DecoderWeights& b) {
    const LayerWeights& first = a.layers[0];
    const LayerWeights& second = b.layers[0];
    EXPECT_EQ(Product(*first.qkv), Product(*second.qkv));
    EXPECT_EQ(Product(*first.output), Product(*second.output));
    EXPECT_EQ(Product(*first.gate_up), Product(*second.gate_up));
    EXPECT_EQ(Product(*first.down), Product(*second.down));
    EXPECT_EQ(Product(*a.lm_head), Product(*b.lm_head));
    EXPECT_EQ(Embeddings(a), Embeddings(b));
  }

  const TemporaryFolder folder_;
  const std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 2});
  const std::unique_ptr<Ops> ops_ = CreateHostOps();
  const std::unique_ptr<Stream> stream_ = device_->CreateStream(StreamKind::kCompute, "test");
};

// q and k have permuted rows, q, k and v of one weight three types, gate and up two, and embedding and
// lm_head are apart: bit for bit the weights that were widened.
TEST_F(DecoderWeightsTest, MixedTypesOfOneWeightShareAFormat) {
  const auto checkpoint = Open({{"blk.0.attn_q", GgmlType::kQ4_0},
                                {"blk.0.attn_k", GgmlType::kQ4_1},
                                {"blk.0.attn_v", GgmlType::kQ8_0},
                                {"blk.0.attn_output", GgmlType::kQ5_0},
                                {"blk.0.ffn_gate", GgmlType::kQ4_0},
                                {"blk.0.ffn_up", GgmlType::kQ5_1},
                                {"blk.0.ffn_down", GgmlType::kQ4_0},
                                {"token_embd", GgmlType::kQ4_1},
                                {"output", GgmlType::kQ8_0}});
  const auto kept = Load(*checkpoint, Quantization::kAuto);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  const LayerWeights& layer = kept->layers[0];
  EXPECT_EQ(layer.qkv->format(), Int8Format(32, true));
  EXPECT_EQ(layer.output->format(), Int8Format(32, false));
  EXPECT_EQ(layer.gate_up->format(), Int8Format(32, true));
  EXPECT_EQ(layer.down->format(), Int4Format(32, false));
  EXPECT_EQ(kept->lm_head->format(), Int8Format(32, false));
  ASSERT_NE(kept->untied_embedding, nullptr);
  EXPECT_EQ(kept->untied_embedding->format(), Int4Format(32, true));
  EXPECT_EQ(kept->Describe(), "int8, groups of 32 with minimum; int8, groups of 32; int4, groups of 32");
  const auto widened = Load(*checkpoint, Quantization::kNone);
  ASSERT_TRUE(widened.ok()) << widened.error().message;
  EXPECT_EQ(widened->Describe(), "fp32");
  EXPECT_EQ(widened->quantized_embedding, nullptr);
  ExpectSameValues(*kept, *widened);
}

// A weight of which a part is floats is widened, the others stay.
TEST_F(DecoderWeightsTest, FloatsBesideCodesWidenTheWeight) {
  const auto checkpoint = Open({{"blk.0.attn_q", GgmlType::kQ4_0}});
  const auto weights = Load(*checkpoint, Quantization::kAuto);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_FALSE(weights->layers[0].qkv->format().is_quantized());
  EXPECT_EQ(weights->layers[0].down->format(), Int8Format(32, false));
  EXPECT_EQ(weights->embedding.rows, 10);
  const auto widened = Load(*checkpoint, Quantization::kNone);
  ASSERT_TRUE(widened.ok());
  ExpectSameValues(*weights, *widened);
}

TEST_F(DecoderWeightsTest, FloatsAreQuantizedOnDemand) {
  const auto checkpoint = Open({{"blk.0.ffn_down", GgmlType::kQ5_1}});
  const auto weights = Load(*checkpoint, Quantization::kInt4);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->layers[0].qkv->format(), Int8Format(32, true)) << "v is int8 in the file";
  EXPECT_EQ(weights->layers[0].down->format(), Int8Format(32, true)) << "as in the file";
  EXPECT_EQ(weights->lm_head->format(), Int8Format(32, false)) << "the vocabulary has 8 bits";
  const auto floats = Load(*checkpoint, Quantization::kNone);
  ASSERT_TRUE(floats.ok());
  const std::vector<float> wanted = Embeddings(*floats);
  const std::vector<float> found = Embeddings(*weights);
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], 0.01F * std::abs(wanted[i]) + 0.1F);
}

TEST_F(DecoderWeightsTest, FloatsBecomeFp8OnDemand) {
  const auto checkpoint = Open({{"blk.0.ffn_down", GgmlType::kQ8_0}});
  const auto weights = Load(*checkpoint, Quantization::kFp8);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const WeightFormat row = Fp8Format(checkpoint->config().hidden_size);
  EXPECT_EQ(weights->layers[0].qkv->format(), WeightFormat()) << "v is int8 in the file, q and k are floats";
  EXPECT_EQ(weights->layers[0].down->format(), Int8Format(32, false)) << "as in the file";
  EXPECT_EQ(weights->lm_head->format(), row);
  ASSERT_NE(weights->untied_embedding, nullptr);
  EXPECT_EQ(weights->untied_embedding->format(), row);
  const auto floats = Load(*checkpoint, Quantization::kNone);
  ASSERT_TRUE(floats.ok());
  const std::vector<float> wanted = Embeddings(*floats);
  const std::vector<float> found = Embeddings(*weights);
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], 0.0626F * std::abs(wanted[i]) + 1e-4F);
}

TEST_F(DecoderWeightsTest, EstimatesAreWhatLoadingTakes) {
  const auto checkpoint = Open({{"blk.0.attn_q", GgmlType::kQ4_0}, {"blk.0.attn_k", GgmlType::kQ4_0}});
  for (const Quantization quantization :
       {Quantization::kAuto, Quantization::kNone, Quantization::kInt8, Quantization::kFp8}) {
    const auto estimate =
        EstimateWeights(*checkpoint, {.quantization = quantization, .dtype = DType::kF32}, *ops_);
    ASSERT_TRUE(estimate.ok()) << estimate.error().message;
    const auto weights = Load(*checkpoint, quantization);
    ASSERT_TRUE(weights.ok());
    // Whole panels of 64 columns, norms and the RoPE table come on top.
    EXPECT_LE(estimate->bytes, static_cast<int64_t>(weights->size_bytes));
    EXPECT_LT(static_cast<double>(weights->size_bytes), 2.0 * static_cast<double>(estimate->bytes));
  }
}

// Floats, and codes in groups of 32: 64 columns of the output projection for two shards, 32 of the MLP are
// floats. q and k have permuted rows.
TEST_F(DecoderWeightsTest, ShardsHaveTheirSlices) {
  for (const bool codes : {false, true}) {
    const auto checkpoint = codes ? Open({{"blk.0.attn_q", GgmlType::kQ4_0},
                                          {"blk.0.attn_k", GgmlType::kQ4_1},
                                          {"blk.0.attn_v", GgmlType::kQ8_0},
                                          {"blk.0.attn_output", GgmlType::kQ5_1},
                                          {"blk.0.ffn_gate", GgmlType::kQ4_0},
                                          {"blk.0.ffn_up", GgmlType::kQ4_0},
                                          {"token_embd", GgmlType::kQ4_1},
                                          {"output", GgmlType::kQ8_0}})
                                  : Open({});
    const auto whole = Load(*checkpoint, Quantization::kAuto);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    std::vector<DecoderWeights> shards;
    for (int rank = 0; rank < 2; ++rank) {
      auto shard = Load(*checkpoint, Quantization::kAuto, {.rank = rank, .size = 2});
      ASSERT_TRUE(shard.ok()) << shard.error().message;
      shards.push_back(std::move(*shard));
    }
    ExpectShardsAreTheWhole(checkpoint->config(), *whole, shards, ops_.get(), stream_.get());
    EXPECT_EQ(shards[0].layers[0].output->format(), whole->layers[0].output->format());
  }
}

TEST_F(DecoderWeightsTest, GroupsThatCannotBeCutAreNamed) {
  // 64 columns in groups of 32; and 32 in one group, which is a scale for each row and can be cut.
  const auto checkpoint = Open({{"blk.0.attn_output", GgmlType::kQ8_0}, {"blk.0.ffn_down", GgmlType::kQ8_0}});
  const auto shard = Load(*checkpoint, Quantization::kAuto, {.rank = 0, .size = 4});
  ASSERT_FALSE(shard.ok());
  EXPECT_EQ(shard.error().param, "tensor-parallel-size");
  EXPECT_THAT(shard.error().message,
              HasSubstr("the 64 columns of model.layers.0.self_attn.o_proj (int8, groups "
                        "of 32) cannot be cut into 4 shards"));
  EXPECT_TRUE(Load(*checkpoint, Quantization::kNone, {.rank = 0, .size = 4}).ok());
  EXPECT_TRUE(Load(*checkpoint, Quantization::kAuto, {.rank = 0, .size = 2}).ok());
}

TEST_F(DecoderWeightsTest, SaysWhatItCannotKeep) {
  const auto checkpoint = Open({});
  const auto fp16 =
      EstimateWeights(*checkpoint, {.quantization = Quantization::kInt8, .dtype = DType::kF16}, *ops_);
  ASSERT_FALSE(fp16.ok());
  EXPECT_EQ(fp16.error().param, "quantization");
  EXPECT_THAT(fp16.error().message, HasSubstr("does not multiply"));
  const auto missing = StoredWeightFormat(*checkpoint, {"nothing"}, false, {}, *ops_);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("no tensor nothing"));
}

}  // namespace
}  // namespace tandem
