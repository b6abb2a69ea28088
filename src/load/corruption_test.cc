// Damages whole model files, field by field and byte by byte: every result is an error or a sane checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "load/checkpoint.h"
#include "load/files_testing.h"
#include "load/gguf_file.h"
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

}  // namespace
}  // namespace tandem
