#include "load/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "load/files_testing.h"
#include "load/required_tensors.h"

namespace tandem {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void ExpectError(const std::string& path, ErrorCode code, const std::string& part) {
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_FALSE(checkpoint.ok()) << part;
  EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
  EXPECT_THAT(checkpoint.error().message, AllOf(HasSubstr(part), HasSubstr(path)));
}

std::vector<float> ReadF32(const Checkpoint& checkpoint, const std::string& name, int64_t begin,
                           int64_t rows) {
  const TensorInfo* info = checkpoint.Find(name);
  EXPECT_NE(info, nullptr) << name;
  std::vector<float> values(static_cast<size_t>(rows * info->cols));
  const Status status = checkpoint.ReadRows(name, begin, rows, DType::kF32, values.data());
  EXPECT_TRUE(status.ok()) << status.error().message;
  return values;
}

// --- GGUF

TEST(GgufCheckpointTest, TinyLlama) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("model.gguf", TinyLlamaGguf(TinyLlamaTensors()).bytes());
  const auto opened = Checkpoint::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.config().head_dim, 16);
  EXPECT_EQ(checkpoint.config().vocab_size, 10);
  EXPECT_FALSE(checkpoint.config().tie_word_embeddings);
  EXPECT_EQ(checkpoint.text_side().generation_defaults.bos_token_id, 1);
  EXPECT_THAT(checkpoint.text_side().generation_defaults.eos_token_ids, ElementsAre(2, 3));
  EXPECT_EQ(checkpoint.text_side().source.kind, TextSource::Kind::kGguf);
  EXPECT_EQ(checkpoint.text_side().source.path, path);
  EXPECT_EQ(checkpoint.text_side().source.chat_template, "{{ messages }}");
  EXPECT_EQ(checkpoint.tensors().front().name, "model.embed_tokens.weight");
  EXPECT_EQ(checkpoint.Find("lm_head.weight")->stored_type, "F32");

  // Row r of a head of 16 rows lies at 2r (first half) or 2(r - 8) + 1 (second half) in the file.
  const std::vector<float> q = ReadF32(checkpoint, "model.layers.0.self_attn.q_proj.weight", 0, 64);
  const std::vector<float> k = ReadF32(checkpoint, "model.layers.0.self_attn.k_proj.weight", 0, 32);
  for (size_t row = 0; row < 64; ++row) {
    const size_t in_head = row % 16;
    const size_t stored = row / 16 * 16 + (in_head < 8 ? 2 * in_head : 2 * (in_head - 8) + 1);
    EXPECT_EQ(q[row * 64], 2000.0F + static_cast<float>(stored)) << row;
    if (row < 32) {
      EXPECT_EQ(k[row * 64], 3000.0F + static_cast<float>(stored)) << row;
    }
  }
  const std::vector<float> some = ReadF32(checkpoint, "model.layers.0.self_attn.q_proj.weight", 21, 7);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), q.begin() + 21 * 64));
  EXPECT_EQ(ReadF32(checkpoint, "model.embed_tokens.weight", 3, 1)[32], 3.5F);
  EXPECT_EQ(ReadF32(checkpoint, "model.layers.0.mlp.down_proj.weight", 2, 1)[5], 64.0F + 5.0F);
}

TEST(GgufCheckpointTest, ReadRowsChecksItsArguments) {
  const TemporaryFolder folder;
  const auto opened = Checkpoint::Open(folder.Write("model.gguf", TinyLlamaGguf(TinyLlamaTensors()).bytes()));
  ASSERT_TRUE(opened.ok());
  const Checkpoint& checkpoint = **opened;
  std::vector<float> values(64 * 10);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(checkpoint.ReadRows("nothing", 0, 1, DType::kF32, values.data()).error().code,
            ErrorCode::kNotFound);
  const std::string name = "model.embed_tokens.weight";
  for (const auto& [begin, rows] : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 1}, {0, -1}, {0, 11}, {10, 1}, {11, 0}, {kMax, kMax}, {1, kMax}}) {
    EXPECT_EQ(checkpoint.ReadRows(name, begin, rows, DType::kF32, values.data()).error().code,
              ErrorCode::kInvalidArgument)
        << begin << " " << rows;
  }
  EXPECT_EQ(checkpoint.ReadRows(name, 0, 1, DType::kI32, values.data()).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(checkpoint.ReadRows(name, 10, 0, DType::kF32, nullptr).ok());
}

TEST(GgufCheckpointTest, BiasesOfLlamaAreReorderedToo) {
  const TemporaryFolder folder;
  std::vector<TinyTensor> tensors = TinyLlamaTensors();
  const auto add_bias = [&tensors](const std::string& name, int size) {
    std::vector<float> values;
    values.reserve(static_cast<size_t>(size));
    for (int i = 0; i < size; ++i) values.push_back(static_cast<float>(i));
    tensors.push_back({name,
                       {static_cast<uint64_t>(size)},
                       GgmlType::kF32,
                       std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)});
  };
  add_bias("blk.0.attn_q.bias", 64);
  add_bias("blk.0.attn_k.bias", 32);
  add_bias("blk.0.attn_v.bias", 32);
  const auto opened = Checkpoint::Open(folder.Write("model.gguf", TinyLlamaGguf(tensors).bytes()));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE((*opened)->config().qkv_bias);
  EXPECT_FALSE((*opened)->config().output_bias);
  const std::vector<float> k = ReadF32(**opened, "model.layers.0.self_attn.k_proj.bias", 0, 1);
  EXPECT_EQ(std::vector<float>(k.begin() + 16, k.begin() + 26),
            (std::vector<float>{16, 18, 20, 22, 24, 26, 28, 30, 17, 19}));
  const std::vector<float> v = ReadF32(**opened, "model.layers.0.self_attn.v_proj.bias", 0, 1);
  EXPECT_EQ(v[17], 17.0F);
}

TEST(GgufCheckpointTest, RopeFrequencyDivisors) {
  const TemporaryFolder folder;
  std::vector<TinyTensor> tensors = TinyLlamaTensors();
  std::vector<float> divisors = {1, 1, 1, 2, 4, 8, 8, 8};
  const auto bytes = [&] {
    return std::string(reinterpret_cast<const char*>(divisors.data()), divisors.size() * 4);
  };
  tensors.push_back({"rope_freqs.weight", {8}, GgmlType::kF32, bytes()});
  const auto opened = Checkpoint::Open(folder.Write("model.gguf", TinyLlamaGguf(tensors).bytes()));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->config().rope_freq_divisors, divisors);
  EXPECT_EQ((*opened)->Find("rope_freqs.weight"), nullptr);
  divisors[3] = 0.0F;
  tensors.back().data = bytes();
  ExpectError(folder.Write("model.gguf", TinyLlamaGguf(tensors).bytes()), ErrorCode::kMalformedFile,
              "rope_freqs");
  divisors.pop_back();
  tensors.back() = {"rope_freqs.weight", {7}, GgmlType::kF32, bytes()};
  ExpectError(folder.Write("model.gguf", TinyLlamaGguf(tensors).bytes()), ErrorCode::kMalformedFile,
              "rope_freqs");
}

TEST(GgufCheckpointTest, MixturesOfExpertsAreNamedBeforeTheirTensors) {
  const TemporaryFolder folder;
  GgufWriter gpt_oss(1, 2);
  gpt_oss.StringEntry("general.architecture", "gpt-oss");
  gpt_oss.IntEntry("gpt-oss.expert_count", 32);
  gpt_oss.Tensor("blk.0.ffn_gate_exps.weight", {32}, 39, 0);
  ExpectError(folder.Write("gpt-oss.gguf", gpt_oss.bytes()), ErrorCode::kUnsupported,
              "models of the family gpt-oss ('gpt-oss') are mixtures of 32 experts, which are not served");
  const GgufWriter mixtral = TinyLlamaGguf(
      TinyLlamaTensors(), 1, [](GgufWriter* writer) { writer->IntEntry("llama.expert_count", 8); });
  ExpectError(folder.Write("model.gguf", mixtral.bytes()), ErrorCode::kUnsupported, "Mixtral");
}

TEST(GgufCheckpointTest, TypesThatAreNotReadAreNamedWithTheirTensor) {
  const TemporaryFolder folder;
  std::vector<TinyTensor> tensors = TinyLlamaTensors();
  tensors[3].type = static_cast<GgmlType>(23);
  ExpectError(folder.Write("model.gguf", TinyLlamaGguf(tensors).bytes()), ErrorCode::kUnsupported,
              "tensor 'blk.0.attn_k.weight' is stored as IQ4_XS (type code 23 at byte");
}

TEST(GgufCheckpointTest, EveryMissingOrMisshapenTensorIsNamed) {
  const TemporaryFolder folder;
  const std::vector<TinyTensor> tensors = TinyLlamaTensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<TinyTensor> fewer = tensors;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    const std::string path = folder.Write("model.gguf", TinyLlamaGguf(fewer).bytes());
    if (tensors[i].name == "output.weight") {
      const auto tied = Checkpoint::Open(path);
      ASSERT_TRUE(tied.ok()) << tied.error().message;
      EXPECT_TRUE((*tied)->config().tie_word_embeddings);
      continue;
    }
    ExpectError(path, ErrorCode::kMalformedFile, "is missing");
    if (tensors[i].name == "token_embd.weight") continue;  // its rows are the vocabulary
    std::vector<TinyTensor> doubled = tensors;
    doubled[i].data += doubled[i].data;
    doubled[i].dims.back() *= 2;
    ExpectError(folder.Write("model.gguf", TinyLlamaGguf(doubled).bytes()), ErrorCode::kMalformedFile,
                "the configuration wants");
  }
}

// --- Hugging Face folders

class FolderCheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    config_ = {{"architectures", {"Qwen2ForCausalLM"}},
               {"hidden_size", 8},
               {"intermediate_size", 6},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 2},
               {"num_key_value_heads", 1},
               {"vocab_size", 5},
               {"eos_token_id", 4}};
    ModelConfig shape;
    shape.num_layers = 2;
    shape.hidden_size = 8;
    shape.intermediate_size = 6;
    shape.num_heads = 2;
    shape.num_kv_heads = 1;
    shape.head_dim = 4;
    shape.vocab_size = 5;
    shape.qkv_bias = true;
    required_ = RequiredTensors(shape);
    WriteConfig();
  }

  void WriteConfig() { folder_.Write("config.json", config_.dump()); }

  // BF16 tensors [begin, end) of the required ones; every value is the tensor's number.
  std::string Shard(size_t begin, size_t end, const std::string& dtype = "BF16") const {
    json header = json::object();
    std::string data;
    for (size_t i = begin; i < end; ++i) {
      const RequiredTensor& tensor = required_[i];
      const size_t offset = data.size();
      const bf16_t value = F32ToBF16(static_cast<float>(i));
      for (int64_t e = 0; e < tensor.rows * tensor.cols; ++e)
        data.append(reinterpret_cast<const char*>(&value), sizeof(value));
      json shape = json::array();
      if (tensor.rows > 1) shape.push_back(tensor.rows);
      shape.push_back(tensor.cols);
      header[tensor.name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {offset, data.size()}}};
    }
    return SafetensorsBytes(header.dump(), data);
  }

  json Index(size_t split) const {
    json map = json::object();
    for (size_t i = 0; i < required_.size(); ++i)
      map[required_[i].name] =
          i < split ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    return {{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
  }
  void WriteIndex(const json& index) { folder_.Write("model.safetensors.index.json", index.dump()); }

  void ExpectFolderError(ErrorCode code, const std::string& part) { ExpectError(folder_.path(), code, part); }

  void ExpectValues() {
    const auto opened = Checkpoint::Open(folder_.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    ASSERT_EQ((*opened)->tensors().size(), required_.size());
    for (size_t i = 0; i < required_.size(); ++i) {
      const std::vector<float> values = ReadF32(**opened, required_[i].name, 0, required_[i].rows);
      EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(i))) << required_[i].name;
    }
  }

  TemporaryFolder folder_;
  json config_;
  std::vector<RequiredTensor> required_;
};

TEST_F(FolderCheckpointTest, OneFile) {
  folder_.Write("model.safetensors", Shard(0, required_.size()));
  ExpectValues();
  folder_.Write("generation_config.json", R"({"eos_token_id":[1,2],"top_k":3})");
  folder_.Write("tokenizer.json", "{}");
  folder_.Write("tokenizer_config.json",
                R"({"chat_template":[{"name":"tools","template":"T"},{"name":"default","template":"D"}]})");
  const auto opened = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT((*opened)->text_side().generation_defaults.eos_token_ids, ElementsAre(1, 2));
  EXPECT_EQ((*opened)->text_side().source.kind, TextSource::Kind::kTokenizerJson);
  EXPECT_EQ((*opened)->text_side().source.path, folder_.path() + "/tokenizer.json");
  EXPECT_EQ((*opened)->text_side().source.chat_template, "D");
  folder_.Write("chat_template.jinja", "J");
  EXPECT_EQ((*Checkpoint::Open(folder_.path()))->text_side().source.chat_template, "J");
  folder_.Write("tokenizer_config.json", R"({"chat_template":5})");
  ExpectFolderError(ErrorCode::kMalformedFile, "chat_template");
}

TEST_F(FolderCheckpointTest, Shards) {
  folder_.Write("model-00001-of-00002.safetensors", Shard(0, 9));
  folder_.Write("model-00002-of-00002.safetensors", Shard(9, required_.size()));
  WriteIndex(Index(9));
  ExpectValues();

  // The index places one tensor in the wrong shard.
  WriteIndex(Index(10));
  ExpectFolderError(ErrorCode::kMalformedFile, required_[9].name);
  // The index does not know a tensor that the model needs.
  json without = Index(9);
  without["weight_map"].erase(required_[4].name);
  WriteIndex(without);
  ExpectFolderError(ErrorCode::kMalformedFile, required_[4].name);
  WriteIndex(Index(9));
  std::filesystem::remove(folder_.path() + "/model-00002-of-00002.safetensors");
  ExpectFolderError(ErrorCode::kNotFound, "shard 'model-00002-of-00002.safetensors' is missing");
}

TEST_F(FolderCheckpointTest, IndexCannotLeaveTheFolder) {
  // The named files exist, so that only the check stands in the way.
  const TemporaryFolder outside;
  const std::string target = outside.Write("x.safetensors", Shard(0, required_.size()));
  const std::string sibling = "../" + std::filesystem::path(outside.path()).filename().string();
  std::filesystem::create_directory(folder_.path() + "/sub");
  folder_.Write("sub/x.safetensors", Shard(0, required_.size()));
  for (const json& name : {json(target), json(sibling + "/x.safetensors"), json("sub/x.safetensors"),
                           json("./../x"), json(".."), json("."), json(""), json("a\\b"),
                           json(std::string("a\0b", 3)), json(5), json(nullptr), json::array()}) {
    json index = Index(9);
    for (auto& entry : index["weight_map"]) entry = name;
    WriteIndex(index);
    ExpectFolderError(ErrorCode::kMalformedFile, "not a file name in the folder");
  }
}

TEST_F(FolderCheckpointTest, BadIndexes) {
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":3})"}) {
    folder_.Write("model.safetensors.index.json", text);
    ExpectFolderError(ErrorCode::kMalformedFile, "model.safetensors.index.json");
  }
}

TEST_F(FolderCheckpointTest, MissingAndBrokenFiles) {
  ExpectFolderError(ErrorCode::kNotFound, "neither model.safetensors nor");
  folder_.Write("model.safetensors", Shard(0, required_.size()));
  folder_.Write("generation_config.json", "{");
  ExpectFolderError(ErrorCode::kMalformedFile, "generation_config.json");
  folder_.Write("generation_config.json", "{}");
  folder_.Write("config.json", "not json");
  ExpectFolderError(ErrorCode::kMalformedFile, "config.json");
  folder_.Write("config.json", R"({"hidden_size":1,"hidden_size":2})");
  ExpectFolderError(ErrorCode::kMalformedFile, "twice");
  std::filesystem::remove(folder_.path() + "/config.json");
  ExpectFolderError(ErrorCode::kNotFound, "config.json");
  EXPECT_EQ(Checkpoint::Open(folder_.path() + "/absent").error().code, ErrorCode::kNotFound);
}

TEST_F(FolderCheckpointTest, WrongShapesAndTypesNameTheTensor) {
  folder_.Write("model.safetensors", Shard(0, required_.size()));
  config_["vocab_size"] = 6;
  WriteConfig();
  ExpectFolderError(ErrorCode::kMalformedFile,
                    "'model.embed_tokens.weight' has shape [5, 8], the configuration wants [6, 8]");
  config_["vocab_size"] = 5;
  config_["num_hidden_layers"] = 3;
  WriteConfig();
  ExpectFolderError(ErrorCode::kMalformedFile, "model.layers.2.input_layernorm.weight");
  config_["num_hidden_layers"] = 2;
  WriteConfig();
  folder_.Write("model.safetensors", Shard(0, required_.size(), "I16"));
  ExpectFolderError(ErrorCode::kUnsupported, "stored as I16");
  folder_.Write("model.safetensors", Shard(0, required_.size() - 1));
  ExpectFolderError(ErrorCode::kMalformedFile, "lm_head.weight");
  config_["tie_word_embeddings"] = true;
  WriteConfig();
  EXPECT_TRUE(Checkpoint::Open(folder_.path()).ok());
}

// --- The real SmolLM2 file, where there is one.

std::string RealModelPath() {
  const char* path = std::getenv("TANDEM_TEST_MODEL");
  if (path != nullptr && *path != '\0') return path;
  return std::string(TANDEM_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

TEST(RealModelTest, SmolLm2) {
  const std::string path = RealModelPath();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto opened = Checkpoint::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Checkpoint& checkpoint = **opened;
  const ModelConfig& config = checkpoint.config();
  EXPECT_EQ(config.family, ModelFamily::kLlama);
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.hidden_size, 576);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.rope_theta, 100000.0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(checkpoint.tensors().size(), 272U);
  EXPECT_THAT(checkpoint.text_side().generation_defaults.eos_token_ids, ElementsAre(2));
  EXPECT_THAT(checkpoint.text_side().source.chat_template, HasSubstr("<|im_start|>"));

  // Four rows around the middle of a head, ordered and dequantized by other code.
  const std::string expected = ReadFileBytes(std::string(TANDEM_SOURCE_DIR) +
                                             "/tests/fixtures/load/smollm2_k_proj_rows_94_98.f32.bin");
  const std::vector<float> rows = ReadF32(checkpoint, "model.layers.0.self_attn.k_proj.weight", 94, 4);
  ASSERT_EQ(expected.size(), rows.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(expected.data(), rows.data(), expected.size()), 0);
}

TEST(RealModelTest, ThreadsReadTheSame) {
  const std::string path = RealModelPath();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto opened = Checkpoint::Open(path);
  ASSERT_TRUE(opened.ok());
  const Checkpoint& checkpoint = **opened;
  const std::string name = "model.layers.7.mlp.down_proj.weight";
  const TensorInfo* info = checkpoint.Find(name);
  ASSERT_NE(info, nullptr);
  std::vector<bf16_t> whole(static_cast<size_t>(info->rows * info->cols));
  ASSERT_TRUE(checkpoint.ReadRows(name, 0, info->rows, DType::kBF16, whole.data()).ok());
  std::vector<bf16_t> parts(whole.size());
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const int64_t rows = info->rows / 4;
      const Status status =
          checkpoint.ReadRows(name, t * rows, rows, DType::kBF16, parts.data() + t * rows * info->cols);
      EXPECT_TRUE(status.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(parts, whole);
}

}  // namespace
}  // namespace tandem
