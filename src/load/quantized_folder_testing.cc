#include "load/quantized_folder_testing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "base/dtype.h"
#include "load/files_testing.h"

namespace tandem {
namespace {

using Kind = QuantizedFolderForm::Kind;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Values of an I32 tensor [lines, words a line], in which places are set bit by bit.
class Words {
 public:
  Words(int64_t lines, int64_t words) : shape_({lines, words}), words_(static_cast<size_t>(lines * words)) {}
  void Put(int64_t line, int64_t word, int shift, uint32_t code) {
    words_[static_cast<size_t>(line * shape_[1] + word)] |= code << shift;
  }
  FolderTensor Tensor(const std::string& name) const { return {name, "I32", shape_, Bytes(words_)}; }

 private:
  std::vector<int64_t> shape_;
  std::vector<uint32_t> words_;
};

// values: rounded to the type in place.
FolderTensor FloatTensor(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                         std::vector<float>* values) {
  if (dtype == "F32") return {name, dtype, std::move(shape), Bytes(*values)};
  std::vector<uint16_t> halves;
  for (float& value : *values) {
    halves.push_back(dtype == "F16" ? F32ToF16(value) : F32ToBF16(value));
    value = dtype == "F16" ? F16ToF32(halves.back()) : BF16ToF32(halves.back());
  }
  return {name, dtype, std::move(shape), Bytes(halves)};
}

float E4M3Value(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return static_cast<float>((bits & 0x80) != 0 ? -magnitude : magnitude);
}

struct Module {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  std::string input;  // what it multiplies: modules of one input have the same groups
};

std::vector<Module> Modules(const QuantizedFolderShape& shape) {
  const int64_t hidden = shape.hidden;
  const int64_t intermediate = shape.intermediate;
  std::vector<Module> modules;
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    modules.push_back({layer + "self_attn.q_proj", hidden, hidden, layer + "qkv"});
    modules.push_back({layer + "self_attn.k_proj", shape.kv_width(), hidden, layer + "qkv"});
    modules.push_back({layer + "self_attn.v_proj", shape.kv_width(), hidden, layer + "qkv"});
    modules.push_back({layer + "self_attn.o_proj", hidden, hidden, layer + "o"});
    modules.push_back({layer + "mlp.gate_proj", intermediate, hidden, layer + "gate_up"});
    modules.push_back({layer + "mlp.up_proj", intermediate, hidden, layer + "gate_up"});
    modules.push_back({layer + "mlp.down_proj", hidden, intermediate, layer + "down"});
  }
  return modules;
}

std::mt19937 RandomOf(const std::string& text) {
  std::seed_seq seed(text.begin(), text.end());
  return std::mt19937(seed);
}

// The codes of a module and what they stand for.
struct Codes {
  std::vector<int> codes;         // [rows, cols]
  std::vector<int> zeros;         // [rows, groups]
  std::vector<float> scales;      // [rows, groups]
  std::vector<int32_t> group_of;  // [cols]
};

Codes RandomCodes(const QuantizedFolderForm& form, const Module& module) {
  std::mt19937 random = RandomOf(form.name + module.name);
  const int64_t group_size = form.group_size == 0 ? module.cols : form.group_size;
  const int64_t groups = module.cols / group_size;
  const int num_codes = 1 << form.bits;
  Codes codes;
  for (int64_t i = 0; i < module.rows * module.cols; ++i)
    codes.codes.push_back(static_cast<int>(random() % static_cast<unsigned>(num_codes)));
  const double typical = 1.0 / (std::sqrt(static_cast<double>(module.cols)) * num_codes / 4);
  for (int64_t i = 0; i < module.rows * groups; ++i) {
    codes.zeros.push_back(form.is_symmetric ? num_codes / 2
                                            : static_cast<int>(random() % static_cast<unsigned>(num_codes)));
    codes.scales.push_back(static_cast<float>(typical * (0.5 + static_cast<double>(random() % 1000) / 1000)));
  }
  codes.group_of.resize(static_cast<size_t>(module.cols));
  std::iota(codes.group_of.begin(), codes.group_of.end(), 0);
  std::mt19937 order = RandomOf(module.input);
  if (form.is_act_order) std::shuffle(codes.group_of.begin(), codes.group_of.end(), order);
  for (int32_t& group : codes.group_of) group /= static_cast<int32_t>(group_size);
  return codes;
}

std::vector<float> Transposed(const std::vector<float>& values, int64_t rows, int64_t cols) {
  std::vector<float> result;
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) result.push_back(values[static_cast<size_t>(r * cols + c)]);
  }
  return result;
}

class FolderMaker {
 public:
  FolderMaker(const QuantizedFolderForm& form, const QuantizedFolderShape& shape)
      : form_(form), shape_(shape) {}

  QuantizedFolder Make() {
    folder_.config = {{"architectures", {"LlamaForCausalLM"}},
                      {"hidden_size", shape_.hidden},
                      {"intermediate_size", shape_.intermediate},
                      {"num_hidden_layers", shape_.layers},
                      {"num_attention_heads", shape_.heads},
                      {"num_key_value_heads", shape_.kv_heads},
                      {"vocab_size", shape_.vocabulary},
                      {"max_position_embeddings", 256},
                      {"quantization_config", QuantizationConfig()}};
    AddFloats("model.embed_tokens.weight", {shape_.vocabulary, shape_.hidden});
    AddFloats("model.norm.weight", {shape_.hidden});
    AddFloats("lm_head.weight", {shape_.vocabulary, shape_.hidden});
    for (int64_t i = 0; i < shape_.layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      AddFloats(layer + "input_layernorm.weight", {shape_.hidden});
      AddFloats(layer + "post_attention_layernorm.weight", {shape_.hidden});
    }
    for (const Module& module : Modules(shape_)) {
      std::vector<float> values = form_.kind == Kind::kFp8 ? AddFp8(module) : AddIntegers(module);
      folder_.dequantized.emplace_back(module.name + ".weight", values);
      folder_.floats.push_back(
          FloatTensor(module.name + ".weight", "F32", {module.rows, module.cols}, &values));
    }
    return std::move(folder_);
  }

 private:
  nlohmann::json QuantizationConfig() const {
    const int64_t group = form_.group_size == 0 ? -1 : form_.group_size;
    switch (form_.kind) {
      case Kind::kAwq:
        return {{"quant_method", "awq"}, {"bits", form_.bits}, {"group_size", group},
                {"version", "gemm"},     {"zero_point", true}, {"modules_to_not_convert", nullptr}};
      case Kind::kGptq:
        return {{"quant_method", "gptq"},
                {"bits", form_.bits},
                {"group_size", group},
                {"sym", form_.is_symmetric},
                {"desc_act", form_.is_act_order},
                {"checkpoint_format", form_.is_gptq_v2 ? "gptq_v2" : "gptq"}};
      case Kind::kCompressedTensors: {
        nlohmann::json weights = {{"num_bits", form_.bits},
                                  {"type", "int"},
                                  {"strategy", form_.group_size == 0 ? "channel" : "group"},
                                  {"symmetric", form_.is_symmetric}};
        if (form_.group_size != 0) weights["group_size"] = form_.group_size;
        return CompressedConfig("pack-quantized", weights);
      }
      case Kind::kFp8:
        break;
    }
    if (form_.block_size == 0) {
      return CompressedConfig("float-quantized", {{"num_bits", 8},
                                                  {"type", "float"},
                                                  {"strategy", form_.is_tensor_wise ? "tensor" : "channel"},
                                                  {"symmetric", true}});
    }
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {form_.block_size, form_.block_size}}};
  }

  static nlohmann::json CompressedConfig(const std::string& format, const nlohmann::json& weights) {
    return {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"ignore", {"lm_head"}},
            {"kv_cache_scheme", nullptr},
            {"config_groups",
             {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", nullptr}}}}}};
  }

  // Of both folders.
  void AddFloats(const std::string& name, const std::vector<int64_t>& shape) {
    std::mt19937 random = RandomOf(name);
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back((shape.size() == 1 ? 1.0F : 0.0F) + static_cast<float>(random() % 512) / 512.0F -
                       0.5F);
    folder_.tensors.push_back(FloatTensor(name, "BF16", shape, &values));
    folder_.floats.push_back(FloatTensor(name, "F32", shape, &values));
  }

  std::vector<float> AddIntegers(const Module& module) {
    Codes codes = RandomCodes(form_, module);
    switch (form_.kind) {
      case Kind::kAwq:
        AddAwq(module, &codes);
        break;
      case Kind::kGptq:
        AddGptq(module, &codes);
        break;
      default:
        AddCompressed(module, &codes);
    }
    const auto groups = static_cast<int64_t>(codes.scales.size()) / module.rows;
    std::vector<float> values;
    for (int64_t row = 0; row < module.rows; ++row) {
      for (int64_t col = 0; col < module.cols; ++col) {
        const auto group = static_cast<size_t>(row * groups + codes.group_of[static_cast<size_t>(col)]);
        const int code = codes.codes[static_cast<size_t>(row * module.cols + col)];
        values.push_back(codes.scales[group] * static_cast<float>(code - codes.zeros[group]));
      }
    }
    return values;
  }

  // scales: [groups, rows], as AWQ and GPTQ have them.
  void AddScaleLines(const Module& module, int64_t groups, Codes* codes) {
    std::vector<float> lines = Transposed(codes->scales, module.rows, groups);
    folder_.tensors.push_back(
        FloatTensor(module.name + ".scales", form_.scale_dtype, {groups, module.rows}, &lines));
    codes->scales = Transposed(lines, groups, module.rows);
  }

  void AddAwq(const Module& module, Codes* codes) {
    constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const auto groups = static_cast<int64_t>(codes->scales.size()) / module.rows;
    Words weight(module.cols, module.rows / 8);
    Words zeros(groups, module.rows / 8);
    for (int64_t word = 0; word < module.rows / 8; ++word) {
      for (int i = 0; i < 8; ++i) {
        const int64_t row = 8 * word + kOrder[i];
        for (int64_t col = 0; col < module.cols; ++col)
          weight.Put(col, word, 4 * i,
                     static_cast<uint32_t>(codes->codes[static_cast<size_t>(row * module.cols + col)]));
        for (int64_t g = 0; g < groups; ++g)
          zeros.Put(g, word, 4 * i,
                    static_cast<uint32_t>(codes->zeros[static_cast<size_t>(row * groups + g)]));
      }
    }
    folder_.tensors.push_back(weight.Tensor(module.name + ".qweight"));
    folder_.tensors.push_back(zeros.Tensor(module.name + ".qzeros"));
    AddScaleLines(module, groups, codes);
  }

  void AddGptq(const Module& module, Codes* codes) {
    const auto groups = static_cast<int64_t>(codes->scales.size()) / module.rows;
    const int per_word = 32 / form_.bits;
    Words weight(module.cols / per_word, module.rows);
    Words zeros(groups, module.rows / per_word);
    for (int64_t row = 0; row < module.rows; ++row) {
      for (int64_t col = 0; col < module.cols; ++col) {
        weight.Put(col / per_word, row, static_cast<int>(col % per_word) * form_.bits,
                   static_cast<uint32_t>(codes->codes[static_cast<size_t>(row * module.cols + col)]));
      }
      for (int64_t g = 0; g < groups; ++g) {
        const int zero = codes->zeros[static_cast<size_t>(row * groups + g)];
        const int stored = form_.is_gptq_v2 ? zero : (zero + (1 << form_.bits) - 1) % (1 << form_.bits);
        zeros.Put(g, row / per_word, static_cast<int>(row % per_word) * form_.bits,
                  static_cast<uint32_t>(stored));
      }
    }
    folder_.tensors.push_back(weight.Tensor(module.name + ".qweight"));
    folder_.tensors.push_back(zeros.Tensor(module.name + ".qzeros"));
    folder_.tensors.push_back({module.name + ".g_idx", "I32", {module.cols}, Bytes(codes->group_of)});
    AddScaleLines(module, groups, codes);
  }

  void AddCompressed(const Module& module, Codes* codes) {
    const auto groups = static_cast<int64_t>(codes->scales.size()) / module.rows;
    const int per_word = 32 / form_.bits;
    Words weight(module.rows, module.cols / per_word);
    Words zeros(module.rows / per_word, groups);
    for (int64_t row = 0; row < module.rows; ++row) {
      for (int64_t col = 0; col < module.cols; ++col) {
        weight.Put(row, col / per_word, static_cast<int>(col % per_word) * form_.bits,
                   static_cast<uint32_t>(codes->codes[static_cast<size_t>(row * module.cols + col)]));
      }
      for (int64_t g = 0; g < groups; ++g) {
        zeros.Put(row / per_word, g, static_cast<int>(row % per_word) * form_.bits,
                  static_cast<uint32_t>(codes->zeros[static_cast<size_t>(row * groups + g)]));
      }
    }
    folder_.tensors.push_back(weight.Tensor(module.name + ".weight_packed"));
    if (!form_.is_symmetric) folder_.tensors.push_back(zeros.Tensor(module.name + ".weight_zero_point"));
    const std::vector<int64_t> shape = {module.rows, module.cols};
    folder_.tensors.push_back({module.name + ".weight_shape", "I64", {2}, Bytes(shape)});
    folder_.tensors.push_back(
        FloatTensor(module.name + ".weight_scale", form_.scale_dtype, {module.rows, groups}, &codes->scales));
    if (form_.is_act_order)
      folder_.tensors.push_back(
          {module.name + ".weight_g_idx", "I32", {module.cols}, Bytes(codes->group_of)});
  }

  std::vector<float> AddFp8(const Module& module) {
    std::mt19937 random = RandomOf(form_.name + module.name);
    const int64_t block_rows = form_.block_size != 0  ? form_.block_size
                               : form_.is_tensor_wise ? module.rows
                                                      : 1;
    const int64_t block_cols = form_.block_size != 0 ? form_.block_size : module.cols;
    const int64_t lines = (module.rows + block_rows - 1) / block_rows;
    const int64_t places = (module.cols + block_cols - 1) / block_cols;
    std::vector<uint8_t> codes;
    while (static_cast<int64_t>(codes.size()) < module.rows * module.cols) {
      const auto code = static_cast<uint8_t>(random());
      if ((code & 0x7f) != 0x7f) codes.push_back(code);
    }
    std::vector<float> scales;
    for (int64_t i = 0; i < lines * places; ++i)
      scales.push_back((1.0F + static_cast<float>(random() % 1000) / 1000.0F) / 4096.0F);
    folder_.tensors.push_back({module.name + ".weight", "F8_E4M3", {module.rows, module.cols}, Bytes(codes)});
    std::vector<int64_t> shape = {lines, places};
    if (form_.is_tensor_wise) shape = {};
    folder_.tensors.push_back(
        FloatTensor(module.name + (form_.block_size != 0 ? ".weight_scale_inv" : ".weight_scale"),
                    form_.scale_dtype, shape, &scales));
    std::vector<float> values;
    for (int64_t row = 0; row < module.rows; ++row) {
      for (int64_t col = 0; col < module.cols; ++col) {
        values.push_back(scales[static_cast<size_t>(row / block_rows * places + col / block_cols)] *
                         E4M3Value(codes[static_cast<size_t>(row * module.cols + col)]));
      }
    }
    return values;
  }

  const QuantizedFolderForm& form_;
  const QuantizedFolderShape& shape_;
  QuantizedFolder folder_;
};

}  // namespace

std::vector<QuantizedFolderForm> QuantizedFolderForms() {
  std::vector<QuantizedFolderForm> forms = {
      {.name = "AWQ of 128", .kind = Kind::kAwq, .group_size = 128, .is_symmetric = false},
      {.name = "AWQ of 32", .kind = Kind::kAwq, .group_size = 32, .is_symmetric = false},
      {.name = "GPTQ", .kind = Kind::kGptq, .group_size = 128},
      {.name = "GPTQ of rows", .kind = Kind::kGptq},
      {.name = "GPTQ of 8 bits", .kind = Kind::kGptq, .bits = 8, .group_size = 32},
      {.name = "GPTQ with zero points", .kind = Kind::kGptq, .group_size = 64, .is_symmetric = false},
      {.name = "GPTQ v2 with zero points",
       .kind = Kind::kGptq,
       .group_size = 64,
       .is_symmetric = false,
       .is_gptq_v2 = true},
      {.name = "GPTQ by activations", .kind = Kind::kGptq, .group_size = 32, .is_act_order = true},
      {.name = "GPTQ of 8 bits by activations, with zero points",
       .kind = Kind::kGptq,
       .bits = 8,
       .group_size = 64,
       .is_symmetric = false,
       .is_act_order = true}};
  for (const int bits : {4, 8}) {
    for (const int64_t group_size : {32, 64, 128, 0}) {
      for (const bool is_symmetric : {true, false}) {
        forms.push_back({.name = "compressed-tensors W" + std::to_string(bits) + " of " +
                                 std::to_string(group_size) + (is_symmetric ? "" : " with zero points"),
                         .kind = Kind::kCompressedTensors,
                         .bits = bits,
                         .group_size = group_size,
                         .is_symmetric = is_symmetric,
                         .scale_dtype = "BF16"});
      }
    }
  }
  forms.push_back({.name = "compressed-tensors by activations",
                   .kind = Kind::kCompressedTensors,
                   .group_size = 32,
                   .is_act_order = true});
  forms.push_back(
      {.name = "FP8 of tensors", .kind = Kind::kFp8, .is_tensor_wise = true, .scale_dtype = "F32"});
  forms.push_back({.name = "FP8 of rows", .kind = Kind::kFp8, .scale_dtype = "BF16"});
  forms.push_back({.name = "FP8 of blocks", .kind = Kind::kFp8, .block_size = 128, .scale_dtype = "F32"});
  forms.push_back(
      {.name = "FP8 of blocks of 96", .kind = Kind::kFp8, .block_size = 96, .scale_dtype = "BF16"});
  return forms;
}

FolderTensor* QuantizedFolder::Find(const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &FolderTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

QuantizedFolder MakeQuantizedFolder(const QuantizedFolderForm& form, const QuantizedFolderShape& shape) {
  return FolderMaker(form, shape).Make();
}

std::string SafetensorsOf(const std::vector<FolderTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const FolderTensor& tensor : tensors) {
    const size_t begin = data.size();
    data += tensor.data;
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return SafetensorsBytes(header.dump(), data);
}

}  // namespace tandem
