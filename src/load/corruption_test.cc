// Damages whole model files, field by field and byte by byte: every result is an error or a sane checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "load/checkpoint.h"
#include "load/files_testing.h"
#include "load/gguf_file.h"
#include "load/quantized_folder_testing.h"
#include "load/safetensors_file.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr uint64_t kHostileValues[] = {0,
                                       1,
                                       2,
                                       0x7fffffffULL,
                                       1ULL << 31,
                                       0xffffffffULL,
                                       1ULL << 32,
                                       1ULL << 61,
                                       (1ULL << 63) - 1,
                                       1ULL << 63,
                                       ~0ULL - 31,
                                       ~0ULL};
// The files are below 64 KiB; tables, messages and buffers of the test itself stay far below this.
constexpr size_t kSaneAllocation = size_t{4} << 20;

// Reads everything the file offers, so that the sanitizers see every byte touched.
void ReadAll(const Checkpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    ASSERT_LT(tensor.rows * tensor.cols, 1 << 20) << tensor.name;
    std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
    const Status status = checkpoint.ReadRows(tensor.name, 0, tensor.rows, DType::kF32, values.data());
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

// An error that names the file, or a checkpoint that reads.
void ExpectErrorOrSane(const std::string& path, const std::string& what) {
  SCOPED_TRACE(what);
  ResetLargestAllocation();
  const auto checkpoint = Checkpoint::Open(path);
  EXPECT_LT(LargestAllocation(), kSaneAllocation);
  if (checkpoint.ok()) {
    ReadAll(**checkpoint);
  } else {
    EXPECT_TRUE(checkpoint.error().code == ErrorCode::kMalformedFile ||
                checkpoint.error().code == ErrorCode::kUnsupported)
        << checkpoint.error().message;
    EXPECT_THAT(checkpoint.error().message, HasSubstr(path));
  }
}

TEST(CorruptionTest, GgufTruncatedAnywhereIsAnError) {
  const TemporaryFolder folder;
  const std::string bytes = TinyLlamaGguf(TinyLlamaTensors()).bytes();
  ASSERT_TRUE(Checkpoint::Open(folder.Write("model.gguf", bytes)).ok());
  const size_t header_bytes = bytes.find(TinyLlamaTensors().front().data);
  ASSERT_LT(header_bytes, 4096U);
  // Every byte of the header, every 97th of the data.
  for (size_t size = 0; size < bytes.size(); size += size < header_bytes + 64 ? 1 : 97) {
    const std::string path = folder.Write("model.gguf", std::string_view(bytes).substr(0, size));
    const auto checkpoint = Checkpoint::Open(path);
    ASSERT_FALSE(checkpoint.ok()) << size;
    EXPECT_EQ(checkpoint.error().code, ErrorCode::kMalformedFile) << checkpoint.error().message;
    EXPECT_THAT(checkpoint.error().message, HasSubstr("model.gguf"));
  }
}

TEST(CorruptionTest, GgufHeaderNumbers) {
  const TemporaryFolder folder;
  const GgufWriter writer = TinyLlamaGguf(TinyLlamaTensors());
  ASSERT_GT(writer.fields().size(), 100U);
  for (const GgufWriter::Field& field : writer.fields()) {
    for (const uint64_t value : kHostileValues) {
      if (field.bytes == 4 && value > 0xffffffffULL) continue;
      std::string bytes = writer.bytes();
      std::memcpy(bytes.data() + field.offset, &value, field.bytes);
      ExpectErrorOrSane(folder.Write("model.gguf", bytes), field.name + " = " + std::to_string(value));
    }
  }
}

TEST(CorruptionTest, GgufHeaderBytes) {
  const TemporaryFolder folder;
  const std::string original = TinyLlamaGguf(TinyLlamaTensors()).bytes();
  const size_t header_bytes = original.find(TinyLlamaTensors().front().data);
  for (size_t i = 0; i < header_bytes; ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bytes = original;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      ExpectErrorOrSane(folder.Write("model.gguf", bytes), "byte " + std::to_string(i));
    }
  }
}

constexpr const char* kHeader = R"({"__metadata__":{"format":"pt"},)"
                                R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

TEST(CorruptionTest, SafetensorsTruncatedAnywhereIsAnError) {
  const TemporaryFolder folder;
  const std::string bytes = SafetensorsBytes(kHeader, std::string(32, 'd'));
  ASSERT_TRUE(SafetensorsFile::Open(folder.Write("m.safetensors", bytes)).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto file =
        SafetensorsFile::Open(folder.Write("m.safetensors", std::string_view(bytes).substr(0, size)));
    ASSERT_FALSE(file.ok()) << size;
    EXPECT_EQ(file.error().code, ErrorCode::kMalformedFile);
    EXPECT_THAT(file.error().message, HasSubstr("m.safetensors"));
  }
}

TEST(CorruptionTest, SafetensorsHeaderLengthAndBytes) {
  const TemporaryFolder folder;
  const std::string original = SafetensorsBytes(kHeader, std::string(32, 'd'));
  for (const uint64_t value : kHostileValues) {
    std::string bytes = original;
    std::memcpy(bytes.data(), &value, sizeof(value));
    ResetLargestAllocation();
    const auto file = SafetensorsFile::Open(folder.Write("m.safetensors", bytes));
    EXPECT_LT(LargestAllocation(), kSaneAllocation);
    ASSERT_FALSE(file.ok()) << value;
    EXPECT_EQ(file.error().code, ErrorCode::kMalformedFile);
  }
  for (size_t i = 8; i < original.size() - 32; ++i) {
    for (const int flip : {0x01, 0x02, 0x08, 0x80}) {
      std::string bytes = original;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      ResetLargestAllocation();
      const auto file = SafetensorsFile::Open(folder.Write("m.safetensors", bytes));
      EXPECT_LT(LargestAllocation(), kSaneAllocation);
      if (!file.ok()) {
        EXPECT_EQ(file.error().code, ErrorCode::kMalformedFile) << file.error().message;
        continue;
      }
      // Still valid: a changed name or an equal size. Its data is inside the file.
      uint64_t num_bytes = 0;
      for (const SafetensorsTensor& tensor : (*file)->tensors()) {
        num_bytes += tensor.num_bytes;
        for (uint64_t b = 0; b < tensor.num_bytes; ++b) EXPECT_EQ(tensor.data[b], 'd');
      }
      EXPECT_EQ(num_bytes, 32U);
    }
  }
}

// Reads a quantized folder's weights as codes and as floats: numbers, or errors that name the file.
void ExpectErrorsOrNumbers(const std::string& folder, const std::string& what) {
  SCOPED_TRACE(what);
  ResetLargestAllocation();
  const auto checkpoint = Checkpoint::Open(folder);
  EXPECT_LT(LargestAllocation(), kSaneAllocation);
  if (!checkpoint.ok()) {
    EXPECT_THAT(checkpoint.error().message, HasSubstr(folder));
    return;
  }
  for (const TensorInfo& tensor : (*checkpoint)->tensors()) {
    if (!tensor.format.is_quantized()) continue;
    ASSERT_LT(tensor.rows * tensor.cols, 1 << 20) << tensor.name;
    QuantizedRows rows;
    const Status codes = (*checkpoint)->ReadQuantizedRows(tensor.name, 0, tensor.rows, tensor.format, &rows);
    std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
    const Status floats = (*checkpoint)->ReadRows(tensor.name, 0, tensor.rows, DType::kF32, values.data());
    for (const Status& status : {codes, floats}) {
      if (status.ok()) continue;
      EXPECT_THAT(status.error().message, HasSubstr(folder + "/model.safetensors: tensor"));
    }
  }
}

// One of each method that has parts of its own.
std::vector<QuantizedFolderForm> FormsToDamage() {
  return {{.name = "awq", .kind = QuantizedFolderForm::Kind::kAwq, .group_size = 64, .is_symmetric = false},
          {.name = "gptq", .kind = QuantizedFolderForm::Kind::kGptq, .group_size = 32, .is_act_order = true},
          {.name = "compressed",
           .kind = QuantizedFolderForm::Kind::kCompressedTensors,
           .group_size = 64,
           .is_symmetric = false},
          {.name = "fp8", .kind = QuantizedFolderForm::Kind::kFp8, .block_size = 128, .scale_dtype = "F32"}};
}

TEST(CorruptionTest, ShapesAndTypesOfQuantizedModules) {
  const TemporaryFolder to;
  const std::string module = "model.layers.1.mlp.down_proj.";
  for (const QuantizedFolderForm& form : FormsToDamage()) {
    const QuantizedFolder original = MakeQuantizedFolder(form);
    to.Write("config.json", original.config.dump());
    for (size_t i = 0; i < original.tensors.size(); ++i) {
      if (!original.tensors[i].name.starts_with(module)) continue;
      const auto num_bytes = static_cast<int64_t>(original.tensors[i].data.size());
      for (const auto& [dtype, bytes] :
           {std::pair<const char*, int64_t>{"I32", 4}, {"I64", 8}, {"F16", 2}, {"F8_E4M3", 1}}) {
        const int64_t count = num_bytes / bytes;
        for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{count},
                                                                                   {1, count},
                                                                                   {count, 1},
                                                                                   {2, count / 2},
                                                                                   {count / 2, 2},
                                                                                   {0, 1LL << 61},
                                                                                   {1LL << 61, 0},
                                                                                   {}}) {
          QuantizedFolder folder = original;
          FolderTensor& tensor = folder.tensors[i];
          tensor.dtype = dtype;
          tensor.shape = shape;
          int64_t size = std::ranges::find(shape, 0) == shape.end() ? bytes : 0;
          for (const int64_t dim : shape) size = size == 0 ? 0 : size * dim;
          tensor.data.resize(static_cast<size_t>(size));
          to.Write("model.safetensors", SafetensorsOf(folder.tensors));
          ExpectErrorsOrNumbers(to.path(), form.name + ": " + tensor.name + " as " + dtype);
        }
      }
    }
  }
}

TEST(CorruptionTest, HeaderAndDataOfQuantizedModules) {
  const TemporaryFolder to;
  for (const QuantizedFolderForm& form : FormsToDamage()) {
    const QuantizedFolder folder = MakeQuantizedFolder(form);
    to.Write("config.json", folder.config.dump());
    const std::string original = SafetensorsOf(folder.tensors);
    // Some bytes of the header and of the data: strides that have no factor in common with anything.
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, original.data(), sizeof(header_bytes));
    for (size_t i = 8; i < original.size(); i += i < header_bytes ? 61 : 4999) {
      std::string bytes = original;
      bytes[i] = static_cast<char>(bytes[i] ^ 0xff);
      to.Write("model.safetensors", bytes);
      ExpectErrorsOrNumbers(to.path(), form.name + ": byte " + std::to_string(i));
    }
  }
}

TEST(CorruptionTest, NumbersOfAQuantizationConfig) {
  const TemporaryFolder to;
  for (const QuantizedFolderForm& form : FormsToDamage()) {
    QuantizedFolder folder = MakeQuantizedFolder(form);
    to.Write("model.safetensors", SafetensorsOf(folder.tensors));
    const nlohmann::json flat = folder.config["quantization_config"].flatten();
    for (const auto& [pointer, value] : flat.items()) {
      for (const nlohmann::json& hostile :
           {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1), nlohmann::json(8),
            nlohmann::json(~0ULL), nlohmann::json(1LL << 62), nlohmann::json(0.5), nlohmann::json("x"),
            nlohmann::json(nullptr)}) {
        nlohmann::json changed = flat;
        changed[pointer] = hostile;
        nlohmann::json config = folder.config;
        config["quantization_config"] = changed.unflatten();
        to.Write("config.json", config.dump());
        ExpectErrorsOrNumbers(to.path(), form.name + ": " + pointer + " = " + hostile.dump());
      }
    }
  }
}

}  // namespace
}  // namespace tandem
