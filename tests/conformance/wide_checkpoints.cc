#include "conformance/wide_checkpoints.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "load/files_testing.h"
#include "load/quantization.h"
#include "load/quantized_folder_testing.h"

namespace tandem {
namespace {

constexpr QuantizedFolderShape kShape = {
    .hidden = 1024, .intermediate = 1024, .vocabulary = 160, .layers = 2, .heads = 16, .kv_heads = 4};

// A GGUF file whose matrices are of one type, but for those of others.
struct GgufForm {
  std::string name;
  GgmlType type = GgmlType::kQ4_K;
  GgmlType of_v_and_down = GgmlType::kQ4_K;
};

const std::vector<GgufForm>& GgufForms() {
  static const std::vector<GgufForm> forms = {
      {"Q5_0", GgmlType::kQ5_0, GgmlType::kQ5_0},
      {"Q5_1", GgmlType::kQ5_1, GgmlType::kQ5_1},
      {"Q4_K", GgmlType::kQ4_K, GgmlType::kQ4_K},
      {"Q5_K", GgmlType::kQ5_K, GgmlType::kQ5_K},
      {"Q6_K", GgmlType::kQ6_K, GgmlType::kQ6_K},
      {"Q4_K with V and down in Q6_K", GgmlType::kQ4_K, GgmlType::kQ6_K},
      {"Q4_K with V and down in Q8_0", GgmlType::kQ4_K, GgmlType::kQ8_0}};
  return forms;
}

const std::vector<std::string>& FolderForms() {
  static const std::vector<std::string> names = {"AWQ of 128",
                                                 "AWQ of 32",
                                                 "GPTQ",
                                                 "GPTQ of 8 bits",
                                                 "GPTQ with zero points",
                                                 "GPTQ v2 with zero points",
                                                 "GPTQ by activations",
                                                 "GPTQ of 8 bits by activations, with zero points",
                                                 "compressed-tensors W4 of 32 with zero points",
                                                 "compressed-tensors W4 of 64",
                                                 "compressed-tensors W4 of 128",
                                                 "compressed-tensors W4 of 0 with zero points",
                                                 "compressed-tensors W8 of 32",
                                                 "compressed-tensors W8 of 64 with zero points",
                                                 "compressed-tensors W8 of 128",
                                                 "compressed-tensors W8 of 0",
                                                 "FP8 of tensors",
                                                 "FP8 of rows",
                                                 "FP8 of blocks"};
  return names;
}

// Where the fp16 numbers of a block are, and how large they are, so that values have a mean of about 0 and
// a spread of about 1 / sqrt(1024).
struct BlockNumbers {
  size_t scale_offset = 0;
  float scale = 0.0F;
  std::optional<size_t> minimum_offset;
  float minimum = 0.0F;  // as it is stored
};

BlockNumbers NumbersOf(GgmlType type) {
  switch (type) {
    case GgmlType::kQ5_0:
      return {.scale = 3.3e-3F};
    case GgmlType::kQ5_1:
      return {.scale = 3.3e-3F, .minimum_offset = 2, .minimum = -15.5F * 3.3e-3F};
    case GgmlType::kQ8_0:
      return {.scale = 4.2e-4F};
    case GgmlType::kQ4_K:
      return {.scale = 1.2e-4F, .minimum_offset = 2, .minimum = 7.5F * 1.2e-4F};
    case GgmlType::kQ5_K:
      return {.scale = 6e-5F, .minimum_offset = 2, .minimum = 15.5F * 6e-5F};
    case GgmlType::kQ6_K:
      return {.scale_offset = 208, .scale = 2.3e-5F};
    default:
      TANDEM_CHECK(false, "blocks of {}", GetBlockFormat(type).name);
  }
}

void PutHalf(float value, size_t offset, std::string* block) {
  const fp16_t half = F32ToF16(value);
  block->replace(offset, sizeof(half), reinterpret_cast<const char*>(&half), sizeof(half));
}

std::mt19937 SeededBy(const std::string& text) {
  std::seed_seq seed(text.begin(), text.end());
  return std::mt19937(seed);
}

std::string RandomBlocks(GgmlType type, int64_t num_elements, std::mt19937& random) {
  const BlockFormat& format = GetBlockFormat(type);
  const BlockNumbers numbers = NumbersOf(type);
  const auto around = [&](float size) {
    return size * (0.75F + static_cast<float>(random() % 512) / 1024.0F);
  };
  std::string bytes;
  for (int64_t i = 0; i < num_elements / format.block_elements; ++i) {
    std::string block(format.block_bytes, '\0');
    for (char& byte : block) byte = static_cast<char>(random());
    PutHalf(around(numbers.scale), numbers.scale_offset, &block);
    if (numbers.minimum_offset) PutHalf(around(numbers.minimum), *numbers.minimum_offset, &block);
    bytes += block;
  }
  return bytes;
}

TinyTensor Matrix(const GgufForm& form, const std::string& name, int64_t rows, int64_t cols, GgmlType type) {
  std::mt19937 random = SeededBy(form.name + name);
  return {.name = name,
          .dims = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
          .type = type,
          .data = RandomBlocks(type, rows * cols, random)};
}

TinyTensor Norm(const std::string& name) {
  std::mt19937 random = SeededBy(name);
  std::vector<float> values;
  for (int64_t i = 0; i < kShape.hidden; ++i)
    values.push_back(0.5F + static_cast<float>(random() % 512) / 512.0F);
  return {.name = name,
          .dims = {static_cast<uint64_t>(kShape.hidden)},
          .data = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
}

std::vector<TinyTensor> Tensors(const GgufForm& form) {
  const int64_t hidden = kShape.hidden;
  std::vector<TinyTensor> tensors;
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols, GgmlType type) {
    tensors.push_back(Matrix(form, name + ".weight", rows, cols, type));
  };
  add("token_embd", kShape.vocabulary, hidden, form.type);
  add("output", kShape.vocabulary, hidden, form.type);
  tensors.push_back(Norm("output_norm.weight"));
  for (int64_t i = 0; i < kShape.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    tensors.push_back(Norm(layer + "attn_norm.weight"));
    tensors.push_back(Norm(layer + "ffn_norm.weight"));
    add(layer + "attn_q", hidden, hidden, form.type);
    add(layer + "attn_k", kShape.kv_width(), hidden, form.type);
    add(layer + "attn_v", kShape.kv_width(), hidden, form.of_v_and_down);
    add(layer + "attn_output", hidden, hidden, form.type);
    add(layer + "ffn_gate", kShape.intermediate, hidden, form.type);
    add(layer + "ffn_up", kShape.intermediate, hidden, form.type);
    add(layer + "ffn_down", hidden, kShape.intermediate, form.of_v_and_down);
  }
  return tensors;
}

std::string GgufBytes(const GgufForm& form) {
  const std::vector<TinyTensor> tensors = Tensors(form);
  std::vector<std::string> tokens;
  std::vector<float> scores;
  for (int64_t i = 0; i < kShape.vocabulary; ++i) {
    tokens.push_back("t" + std::to_string(i));
    scores.push_back(0.0F);
  }
  GgufWriter writer(tensors.size(), 14);
  writer.StringEntry("general.architecture", "llama");
  writer.IntEntry("llama.block_count", static_cast<uint32_t>(kShape.layers));
  writer.IntEntry("llama.context_length", 256);
  writer.IntEntry("llama.embedding_length", static_cast<uint32_t>(kShape.hidden));
  writer.IntEntry("llama.feed_forward_length", static_cast<uint32_t>(kShape.intermediate));
  writer.IntEntry("llama.attention.head_count", static_cast<uint32_t>(kShape.heads));
  writer.IntEntry("llama.attention.head_count_kv", static_cast<uint32_t>(kShape.kv_heads));
  writer.FloatEntry("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.FloatEntry("llama.rope.freq_base", 10000.0F);
  writer.IntEntry("llama.rope.dimension_count", static_cast<uint32_t>(kShape.hidden / kShape.heads));
  writer.IntEntry("llama.vocab_size", static_cast<uint32_t>(kShape.vocabulary));
  writer.StringEntry("tokenizer.ggml.model", "llama");
  writer.StringArrayEntry("tokenizer.ggml.tokens", tokens);
  writer.FloatArrayEntry("tokenizer.ggml.scores", scores);
  uint64_t offset = 0;
  for (const TinyTensor& tensor : tensors) {
    writer.Tensor(tensor.name, tensor.dims, static_cast<uint32_t>(tensor.type), offset);
    offset = (offset + tensor.data.size() + 31) / 32 * 32;
  }
  for (const TinyTensor& tensor : tensors) {
    writer.PadTo(32);
    writer.Data(tensor.data);
  }
  return writer.bytes();
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  TANDEM_CHECK(file.good(), "cannot write {}", path);
}

}  // namespace

std::vector<std::string> WideCheckpointNames() {
  std::vector<std::string> names = FolderForms();
  for (const GgufForm& form : GgufForms()) names.push_back(form.name);
  return names;
}

std::string WriteWideCheckpoint(const std::string& name, const std::string& folder) {
  const auto gguf = std::ranges::find(GgufForms(), name, &GgufForm::name);
  if (gguf != GgufForms().end()) {
    WriteFile(folder + "/model.gguf", GgufBytes(*gguf));
    return folder + "/model.gguf";
  }
  const std::vector<QuantizedFolderForm> forms = QuantizedFolderForms();
  const auto form = std::ranges::find(forms, name, &QuantizedFolderForm::name);
  TANDEM_CHECK(form != forms.end(), "no form '{}'", name);
  const QuantizedFolder made = MakeQuantizedFolder(*form, kShape);
  WriteFile(folder + "/config.json", made.config.dump());
  WriteFile(folder + "/model.safetensors", SafetensorsOf(made.tensors));
  return folder;
}

}  // namespace tandem
