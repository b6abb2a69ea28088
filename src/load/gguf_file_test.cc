#include "load/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "load/files_testing.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GgufFileTest : public testing::Test {
 protected:
  Result<std::unique_ptr<GgufFile>> Open(std::string_view bytes) {
    return GgufFile::Open(folder_.Write("model.gguf", bytes));
  }

  void ExpectMalformed(std::string_view bytes, const std::string& part) {
    const auto file = Open(bytes);
    ASSERT_FALSE(file.ok()) << part;
    EXPECT_EQ(file.error().code, ErrorCode::kMalformedFile) << file.error().message;
    EXPECT_THAT(file.error().message, HasSubstr(part));
    EXPECT_THAT(file.error().message, HasSubstr("model.gguf"));
    EXPECT_THAT(file.error().message, HasSubstr("byte"));
  }

  TemporaryFolder folder_;
};

TEST_F(GgufFileTest, ReadsMetadataAndTensors) {
  const std::vector<TinyTensor> tensors = TinyLlamaTensors();
  const auto opened = Open(TinyLlamaGguf(tensors).bytes());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const GgufFile& file = **opened;
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.GetString("general.architecture").value(), "llama");
  EXPECT_EQ(file.GetInt("llama.embedding_length").value(), 64);
  EXPECT_FLOAT_EQ(static_cast<float>(file.GetFloat("llama.rope.freq_base").value()), 10000.0F);
  EXPECT_TRUE(file.GetBool("tokenizer.ggml.add_bos_token").value());
  EXPECT_THAT(file.GetStringArray("tokenizer.ggml.tokens").value(), ElementsAre("a", "", "<s>", "\xff"));
  EXPECT_THAT(file.GetFloatArray("tokenizer.ggml.scores").value(), ElementsAre(0.5F, -1.0F));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    EXPECT_EQ(tensor.name, tensors[i].name);
    EXPECT_EQ(static_cast<uint64_t>(tensor.dims[0]), tensors[i].dims[0]);
    ASSERT_EQ(tensor.num_bytes, tensors[i].data.size());
    EXPECT_EQ(std::memcmp(tensor.data, tensors[i].data.data(), tensor.num_bytes), 0);
    EXPECT_EQ(file.FindTensor(tensors[i].name), &tensor);
  }
  EXPECT_EQ(file.FindTensor("nothing"), nullptr);
}

TEST_F(GgufFileTest, GettersReportMissingKeysAndWrongTypes) {
  const auto opened = Open(TinyLlamaGguf(TinyLlamaTensors()).bytes());
  ASSERT_TRUE(opened.ok());
  const GgufFile& file = **opened;
  EXPECT_EQ(file.GetInt("no.such.key").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(file.GetIntOr("no.such.key", 7).value(), 7);
  for (const Error& error :
       {file.GetInt("general.architecture").error(), file.GetString("llama.block_count").error(),
        file.GetFloat("llama.block_count").error(), file.GetBool("llama.block_count").error(),
        file.GetInt("tokenizer.ggml.tokens").error(), file.GetFloatArray("tokenizer.ggml.tokens").error(),
        file.GetInt32Array("tokenizer.ggml.tokens").error(),
        file.GetStringArray("tokenizer.ggml.scores").error(),
        file.GetStringArray("llama.block_count").error(), file.GetIntOr("general.architecture", 7).error(),
        file.GetBoolOr("llama.block_count", true).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kMalformedFile) << error.message;
    EXPECT_THAT(error.message, HasSubstr("metadata"));
  }
}

TEST_F(GgufFileTest, ReadsEveryIntegerWidth) {
  GgufWriter writer(0, 9, 2);
  writer.EntryHeader("u8", GgufValueType::kUint8);
  writer.U8(255);
  writer.EntryHeader("i8", GgufValueType::kInt8);
  writer.U8(255);
  writer.EntryHeader("u16", GgufValueType::kUint16);
  writer.Data("\xff\xff");
  writer.EntryHeader("i16", GgufValueType::kInt16);
  writer.Data("\xff\xff");
  writer.EntryHeader("i32", GgufValueType::kInt32);
  writer.U32("", 0xffffffffU);
  writer.EntryHeader("u64", GgufValueType::kUint64);
  writer.U64("", 1ULL << 62);
  writer.EntryHeader("u64 beyond", GgufValueType::kUint64);
  writer.U64("", 1ULL << 63);
  writer.EntryHeader("i64", GgufValueType::kInt64);
  writer.U64("", ~0ULL);
  writer.EntryHeader("i16 array", GgufValueType::kArray);
  writer.U32("", static_cast<uint32_t>(GgufValueType::kInt16));
  writer.U64("", 2);
  writer.Data(std::string("\x01\x00\xfe\xff", 4));
  const auto opened = Open(writer.bytes());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const GgufFile& file = **opened;
  EXPECT_EQ(file.GetInt("u8").value(), 255);
  EXPECT_EQ(file.GetInt("i8").value(), -1);
  EXPECT_EQ(file.GetInt("u16").value(), 65535);
  EXPECT_EQ(file.GetInt("i16").value(), -1);
  EXPECT_EQ(file.GetInt("i32").value(), -1);
  EXPECT_EQ(file.GetInt("u64").value(), int64_t{1} << 62);
  EXPECT_EQ(file.GetInt("u64 beyond").error().code, ErrorCode::kMalformedFile);
  EXPECT_EQ(file.GetInt("i64").value(), -1);
  EXPECT_THAT(file.GetInt32Array("i16 array").value(), ElementsAre(1, -2));
}

TEST_F(GgufFileTest, RejectsOtherFilesAndVersions) {
  EXPECT_EQ(GgufFile::Open(folder_.path() + "/absent").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(GgufFile::Open(folder_.path()).error().code, ErrorCode::kIo);
  ExpectMalformed("", "magic");
  ExpectMalformed("GGML and more text behind it", "magic");
  EXPECT_EQ(Open(GgufWriter(0, 0, 1).bytes()).error().code, ErrorCode::kUnsupported);
  const auto big_endian = Open(GgufWriter(0, 0, 0x03000000U).bytes());
  EXPECT_THAT(big_endian.error().message, HasSubstr("big-endian"));
}

// One tensor, then what `change` appends; 64 bytes of data.
std::string WithTensors(uint64_t num_tensors, const std::function<void(GgufWriter&)>& add) {
  GgufWriter writer(num_tensors, 0);
  add(writer);
  writer.PadTo(32);
  writer.Data(std::string(128, '\0'));
  return writer.bytes();
}

TEST_F(GgufFileTest, RejectsBadTensorTables) {
  const auto one = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    return WithTensors(1, [&](GgufWriter& writer) { writer.Tensor("t", dims, type, offset); });
  };
  ASSERT_TRUE(Open(one({32}, 0, 0)).ok());
  ASSERT_TRUE(Open(one({2, 2, 2, 4}, 0, 0)).ok());
  ExpectMalformed(one({}, 0, 0), "0 dimensions");
  ExpectMalformed(one({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
  ExpectMalformed(one({4, 0}, 0, 0), "dimension of zero");
  ExpectMalformed(one({1ULL << 32, 1ULL << 32}, 0, 0), "overflows");
  ExpectMalformed(one({1ULL << 62}, 0, 0), "overflow");
  ExpectMalformed(one({~0ULL}, 0, 0), "overflow");
  ExpectMalformed(one({33}, static_cast<uint32_t>(GgmlType::kQ8_0), 0), "whole blocks");
  for (const GgmlType type : {GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K}) {
    ExpectMalformed(one({576}, static_cast<uint32_t>(type), 0),
                    "tensor 't' has rows of 576 values, not whole blocks of 256 (" +
                        std::string(GetBlockFormat(type).name) + "),");
  }
  ExpectMalformed(one({8}, 0, 16), "alignment");
  ExpectMalformed(one({8}, 0, 128), "beyond");
  ExpectMalformed(one({33}, 0, 0), "beyond");
  ExpectMalformed(one({8}, 0, ~0ULL - 31), "beyond");
  const auto unknown_type = Open(one({8}, 99, 0));
  EXPECT_EQ(unknown_type.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(unknown_type.error().message, HasSubstr("is stored as an unknown type (type code 99 at byte"));

  ExpectMalformed(WithTensors(2,
                              [](GgufWriter& writer) {
                                writer.Tensor("a", {16}, 0, 0);
                                writer.Tensor("b", {8}, 0, 32);
                              }),
                  "'a' and 'b' overlap");
  ExpectMalformed(WithTensors(2,
                              [](GgufWriter& writer) {
                                writer.Tensor("a", {8}, 0, 32);
                                writer.Tensor("b", {8}, 0, 32);
                              }),
                  "overlap");
  ExpectMalformed(WithTensors(2,
                              [](GgufWriter& writer) {
                                writer.Tensor("a", {8}, 0, 0);
                                writer.Tensor("a", {8}, 0, 32);
                              }),
                  "appears twice");
  ExpectMalformed(WithTensors(1, [](GgufWriter& writer) { writer.Tensor("", {8}, 0, 0); }), "empty");
}

TEST_F(GgufFileTest, RejectsBadMetadata) {
  const auto one = [](const std::function<void(GgufWriter&)>& add) {
    GgufWriter writer(0, 1);
    add(writer);
    writer.Data(std::string(64, '\1'));
    return writer.bytes();
  };
  const auto array_of = [&](uint32_t type, uint64_t count) {
    return one([=](GgufWriter& writer) {
      writer.EntryHeader("k", GgufValueType::kArray);
      writer.U32("", type);
      writer.U64("", count);
    });
  };
  ASSERT_TRUE(Open(array_of(0, 64)).ok());
  ExpectMalformed(array_of(0, 65), "more than");
  for (uint32_t type = 0; type <= 12; ++type) {
    for (const uint64_t count : {1ULL << 31, 1ULL << 61, 1ULL << 62, 1ULL << 63, ~0ULL})
      ExpectMalformed(array_of(type, count), "more than");
  }
  ExpectMalformed(array_of(13, 1), "unknown type 13");
  ExpectMalformed(one([](GgufWriter& w) { w.EntryHeader("k", static_cast<GgufValueType>(77)); }),
                  "unknown type 77");
  ExpectMalformed(one([](GgufWriter& w) { w.IntEntry("", 1); }), "empty");
  ExpectMalformed(one([](GgufWriter& w) {
                    w.EntryHeader("k", GgufValueType::kBool);
                    w.U8(2);
                  }),
                  "boolean");
  ExpectMalformed(one([](GgufWriter& w) {
                    w.EntryHeader("k", GgufValueType::kArray);
                    for (int depth = 0; depth < 6; ++depth) {
                      w.U32("", static_cast<uint32_t>(GgufValueType::kArray));
                      w.U64("", 1);
                    }
                  }),
                  "nests");
  for (const uint32_t alignment : {0U, 3U, 48U, 0xffffffffU})
    ExpectMalformed(one([=](GgufWriter& w) { w.IntEntry("general.alignment", alignment); }), "power of two");
  GgufWriter twice(0, 2);
  twice.IntEntry("k", 1);
  twice.IntEntry("k", 1);
  ExpectMalformed(twice.bytes(), "appears twice");
}

TEST_F(GgufFileTest, ReadsNestedArraysWithinBounds) {
  GgufWriter writer(0, 2);
  writer.EntryHeader("nested", GgufValueType::kArray);
  writer.U32("", static_cast<uint32_t>(GgufValueType::kArray));
  writer.U64("", 2);
  for (int i = 0; i < 2; ++i) {
    writer.U32("", static_cast<uint32_t>(GgufValueType::kString));
    writer.U64("", 1);
    writer.String("", "x");
  }
  writer.IntEntry("after", 5);
  const auto file = Open(writer.bytes());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->GetInt("after").value(), 5);
  EXPECT_EQ((*file)->GetStringArray("nested").error().code, ErrorCode::kMalformedFile);
}

}  // namespace
}  // namespace tandem
