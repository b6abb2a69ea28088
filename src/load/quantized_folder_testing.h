// Writes a small llama whose layers are quantized, in every form that folders have, and beside it the floats
// that its codes stand for. Packing and values are computed here from what the formats are documented to be,
// with nothing of the loader's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

struct QuantizedFolderForm {
  enum class Kind { kAwq, kGptq, kCompressedTensors, kFp8 };
  std::string name;
  Kind kind = Kind::kAwq;
  int bits = 4;
  int64_t group_size = 0;       // 0: a scale a row
  bool is_symmetric = true;     // no zero points, or the middle of the codes for all
  bool is_act_order = false;    // columns are in groups at random; those of one input in the same
  bool is_gptq_v2 = false;      // zero points are stored as they are
  bool is_tensor_wise = false;  // FP8: one scale
  int64_t block_size = 0;       // FP8: scales of blocks
  std::string scale_dtype = "F16";

  friend std::ostream& operator<<(std::ostream& out, const QuantizedFolderForm& form) {
    return out << form.name;
  }
};

struct QuantizedFolderShape {
  int64_t hidden = 128;
  int64_t intermediate = 256;
  int64_t vocabulary = 96;
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t kv_heads = 2;

  int64_t kv_width() const { return hidden / heads * kv_heads; }
};

// One of each kind, group size and strategy, which have no tensor in common.
std::vector<QuantizedFolderForm> QuantizedFolderForms();

struct FolderTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

// Every value is a function of the form and of the tensor's name.
struct QuantizedFolder {
  nlohmann::json config;                                                // with its quantization_config
  std::vector<FolderTensor> tensors;                                    // of model.safetensors
  std::vector<std::pair<std::string, std::vector<float>>> dequantized;  // by "MODULE.weight", row-major
  std::vector<FolderTensor> floats;                                     // the same model, of F32

  FolderTensor* Find(const std::string& name);
};
QuantizedFolder MakeQuantizedFolder(const QuantizedFolderForm& form, const QuantizedFolderShape& shape = {});

// The bytes of a .safetensors file.
std::string SafetensorsOf(const std::vector<FolderTensor>& tensors);

}  // namespace tandem
