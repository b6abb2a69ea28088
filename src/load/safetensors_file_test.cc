#include "load/safetensors_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "load/files_testing.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SafetensorsFileTest : public testing::Test {
 protected:
  Result<std::unique_ptr<SafetensorsFile>> Open(std::string_view header, size_t data_bytes) {
    return SafetensorsFile::Open(
        folder_.Write("m.safetensors", SafetensorsBytes(header, std::string(data_bytes, 'd'))));
  }

  void ExpectMalformed(std::string_view header, size_t data_bytes, const std::string& part) {
    const auto file = Open(header, data_bytes);
    ASSERT_FALSE(file.ok()) << header;
    EXPECT_EQ(file.error().code, ErrorCode::kMalformedFile);
    EXPECT_THAT(file.error().message, HasSubstr(part));
    EXPECT_THAT(file.error().message, HasSubstr("m.safetensors"));
  }

  TemporaryFolder folder_;
};

TEST_F(SafetensorsFileTest, ReadsTensorsInOrderOfTheirData) {
  const auto opened = Open(
      R"({"z":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"empty":{"dtype":"F16","shape":[0,7],"data_offsets":[24,24]},)"
      R"("a":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"s":{"dtype":"I64","shape":[],"data_offsets":[32,40]}}   )",
      40);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const auto& tensors = (*opened)->tensors();
  ASSERT_EQ(tensors.size(), 4U);
  EXPECT_EQ(tensors[0].name, "z");
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(tensors[0].type, GgmlType::kF32);
  EXPECT_EQ(tensors[1].name, "empty");
  EXPECT_EQ(tensors[2].name, "a");
  EXPECT_EQ(tensors[2].type, GgmlType::kBF16);
  EXPECT_EQ(tensors[2].data - tensors[0].data, 24);
  EXPECT_EQ(tensors[3].dtype, "I64");
  EXPECT_FALSE(tensors[3].type.has_value());
}

TEST_F(SafetensorsFileTest, RejectsBadHeaders) {
  ExpectMalformed("", 0, "JSON");
  ExpectMalformed("[]", 0, "not a JSON object");
  ExpectMalformed("{", 0, "byte");
  ExpectMalformed("{\"a\xff\":1}", 0, "JSON");
  ExpectMalformed(std::string(50000, '['), 0, "JSON");
  ExpectMalformed(R"({"__metadata__":1})", 0, "__metadata__");
  ExpectMalformed(R"({"a":1})", 0, "not an object");
  ExpectMalformed("{}", 4, "goes on");
}

TEST_F(SafetensorsFileTest, RejectsBadTensors) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  ASSERT_TRUE(Open(one("\"F32\"", "[2]", "[0,8]"), 8).ok());
  ExpectMalformed(one("\"F31\"", "[2]", "[0,8]"), 8, "unknown 'F31'");
  ExpectMalformed(one("3", "[2]", "[0,8]"), 8, "dtype");
  ExpectMalformed(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "'dtype' is missing");
  for (const char* shape :
       {"2", "null", "[-1]", "[1.5]", "[\"2\"]", "{}", "[1,1,1,1,1,1,1,1,2]", "[9223372036854775807,3]",
        "[18446744073709551615]", "[99999999999999999999]", "[0,9223372036854775807,9223372036854775807]"})
    ExpectMalformed(one("\"F32\"", shape, "[0,8]"), 8, "shape");
  for (const char* offsets :
       {"8", "[0]", "[0,8,8]", "[0,-8]", "[0,8.0]", "[\"0\",8]", "null", "{}", "[8,0]", "[0,9]",
        "[0,18446744073709551615]", "[18446744073709551608,18446744073709551615]"})
    ExpectMalformed(one("\"F32\"", "[2]", offsets), 8, "data_offsets");
  ExpectMalformed(one("\"F16\"", "[2]", "[0,8]"), 8, "spans 8 bytes, shape and dtype take 4");
  ExpectMalformed(one("\"F32\"", "[2]", "[4,12]"), 12, "hole");
  ExpectMalformed(one("\"F32\"", "[2]", "[0,8]"), 12, "goes on");
}

TEST_F(SafetensorsFileTest, RejectsOverlapsAndDuplicates) {
  ExpectMalformed(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
      12, "overlaps");
  ExpectMalformed(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      8, "overlaps");
  ExpectMalformed(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      8, "'a' appears twice");
}

}  // namespace
}  // namespace tandem
