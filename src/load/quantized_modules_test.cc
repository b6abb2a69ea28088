#include "load/quantized_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "load/checkpoint.h"
#include "load/files_testing.h"
#include "load/quantized_folder_testing.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Kind = QuantizedFolderForm::Kind;

Result<std::unique_ptr<Checkpoint>> OpenQuantized(const TemporaryFolder& to, const QuantizedFolder& folder) {
  to.Write("config.json", folder.config.dump());
  to.Write("model.safetensors", SafetensorsOf(folder.tensors));
  return Checkpoint::Open(to.path());
}

WeightFormat ExpectedFormat(const QuantizedFolderForm& form, int64_t cols) {
  if (form.kind == Kind::kFp8) {
    if (form.block_size == 96) return Fp8Format(32);
    return Fp8Format(form.block_size == 0 ? cols : form.block_size);
  }
  const int64_t group_size = form.group_size == 0 ? cols : form.group_size;
  const WeightFormat symmetric =
      form.bits == 4 ? Int4Format(group_size, false) : Int8Format(group_size, false);
  return form.is_symmetric ? symmetric : WithZeroPoints(symmetric);
}

class EveryFormTest : public testing::TestWithParam<QuantizedFolderForm> {
 protected:
  const TemporaryFolder to_;
  const QuantizedFolder folder_ = MakeQuantizedFolder(GetParam());
};

TEST_P(EveryFormTest, RowsAreTheDequantizedFloats) {
  const auto checkpoint = OpenQuantized(to_, folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->tensors().size(), folder_.floats.size());
  for (const auto& [name, wanted] : folder_.dequantized) {
    SCOPED_TRACE(name);
    const TensorInfo* info = (*checkpoint)->Find(name);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->format, ExpectedFormat(GetParam(), info->cols));
    // Some rows that begin and end amid words, then all.
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{3, 14}, {0, info->rows}}) {
      std::vector<float> found(static_cast<size_t>(count * info->cols));
      const Status status = (*checkpoint)->ReadRows(name, begin, count, DType::kF32, found.data());
      ASSERT_TRUE(status.ok()) << status.error().message;
      const auto* from = wanted.data() + begin * info->cols;
      ASSERT_EQ(found, std::vector<float>(from, from + found.size()));
      std::vector<bf16_t> rounded(found.size());
      ASSERT_TRUE((*checkpoint)->ReadRows(name, begin, count, DType::kBF16, rounded.data()).ok());
      for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(rounded[i], F32ToBF16(found[i]));
    }
  }
  EXPECT_FALSE((*checkpoint)->Find("lm_head.weight")->format.is_quantized());
}

TEST_P(EveryFormTest, CodesStandForTheSameValues) {
  const auto checkpoint = OpenQuantized(to_, folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  for (const auto& [name, wanted] : folder_.dequantized) {
    SCOPED_TRACE(name);
    const TensorInfo& info = *(*checkpoint)->Find(name);
    EXPECT_EQ(info.column_order != nullptr, GetParam().is_act_order);
    QuantizedRows rows;
    const Status status = (*checkpoint)->ReadQuantizedRows(name, 5, 20, info.format, &rows);
    ASSERT_TRUE(status.ok()) << status.error().message;
    std::vector<float> found(rows.codes.size());
    DequantizeRows(rows, found.data());
    for (int64_t i = 0; i < 20; ++i) {
      for (int64_t c = 0; c < info.cols; ++c) {
        const int64_t col = info.column_order == nullptr ? c : (*info.column_order)[static_cast<size_t>(c)];
        ASSERT_EQ(found[static_cast<size_t>(i * info.cols + c)],
                  wanted[static_cast<size_t>((5 + i) * info.cols + col)])
            << i << " " << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, EveryFormTest, testing::ValuesIn(QuantizedFolderForms()),
                         [](const testing::TestParamInfo<QuantizedFolderForm>& form) {
                           std::string name = form.param.name;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

// FP8 where integers are wanted: rounded to them.
TEST(QuantizedModulesTest, Fp8IsQuantizedAnewOnDemand) {
  const TemporaryFolder to;
  const QuantizedFolder folder =
      MakeQuantizedFolder({.name = "FP8", .kind = Kind::kFp8, .block_size = 128, .scale_dtype = "F32"});
  const auto checkpoint = OpenQuantized(to, folder);
  ASSERT_TRUE(checkpoint.ok());
  QuantizedRows rows;
  ASSERT_TRUE(
      (*checkpoint)
          ->ReadQuantizedRows("model.layers.1.mlp.down_proj.weight", 0, 128, Int8Format(32, false), &rows)
          .ok());
  std::vector<float> found(rows.codes.size());
  DequantizeRows(rows, found.data());
  const std::vector<float>& wanted = folder.dequantized.back().second;
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], 1.04F * std::abs(rows.scales[i / 32]));
}

class BadFolderTest : public testing::Test {
 protected:
  // The error of opening the folder, or of reading the module that was changed.
  std::string ErrorOf(const QuantizedFolderForm& form, const std::function<void(QuantizedFolder*)>& change) {
    QuantizedFolder folder = MakeQuantizedFolder(form);
    change(&folder);
    const auto checkpoint = OpenQuantized(to_, folder);
    if (!checkpoint.ok()) return checkpoint.error().message;
    QuantizedRows rows;
    const TensorInfo& info = *(*checkpoint)->Find(kModule + ".weight");
    const Status codes = (*checkpoint)->ReadQuantizedRows(info.name, 0, info.rows, info.format, &rows);
    std::vector<float> values(static_cast<size_t>(info.rows * info.cols));
    const Status floats = (*checkpoint)->ReadRows(info.name, 0, info.rows, DType::kF32, values.data());
    EXPECT_FALSE(codes.ok() || floats.ok());
    if (codes.ok() || floats.ok()) return "";
    EXPECT_EQ(codes.error().message, floats.error().message);
    return codes.error().message;
  }

  // Of a tensor of the module: the message names it, or the one beside which it is missing, and the file.
  void Expect(const QuantizedFolderForm& form, const std::string& suffix,
              const std::function<void(FolderTensor*)>& change, const std::string& part) {
    const std::string message =
        ErrorOf(form, [&](QuantizedFolder* folder) { change(folder->Find(kModule + suffix)); });
    EXPECT_THAT(message,
                AllOf(HasSubstr(to_.path() + "/model.safetensors: tensor '" + kModule), HasSubstr(part)));
  }
  void ExpectMissing(const QuantizedFolderForm& form, const std::string& suffix, const std::string& part) {
    const std::string message = ErrorOf(form, [&](QuantizedFolder* folder) {
      std::erase_if(folder->tensors, [&](const FolderTensor& t) { return t.name == kModule + suffix; });
    });
    EXPECT_THAT(message, AllOf(HasSubstr(to_.path()), HasSubstr("tensor '" + kModule), HasSubstr(part)));
  }

  static void PutHalf(FolderTensor* tensor, uint16_t bits) {
    std::memcpy(tensor->data.data() + 10, &bits, 2);
  }

  const std::string kModule = "model.layers.1.mlp.down_proj";
  const TemporaryFolder to_;
  const QuantizedFolderForm awq_ = {.name = "a", .kind = Kind::kAwq, .group_size = 64, .is_symmetric = false};
  const QuantizedFolderForm gptq_ = {.name = "g", .kind = Kind::kGptq, .group_size = 64};
  const QuantizedFolderForm packed_ = {
      .name = "c", .kind = Kind::kCompressedTensors, .group_size = 64, .is_symmetric = false};
  const QuantizedFolderForm fp8_ = {.name = "f", .kind = Kind::kFp8, .block_size = 128, .scale_dtype = "F32"};
};

TEST_F(BadFolderTest, PartsThatAreMissing) {
  ExpectMissing(awq_, ".scales", "has no '" + kModule + ".scales' beside it");
  ExpectMissing(awq_, ".qzeros", "has no '" + kModule + ".qzeros' beside it");
  ExpectMissing(awq_, ".qweight", "down_proj.weight' of shape [128, 256] is missing");
  ExpectMissing(gptq_, ".scales", ".scales' beside it");
  ExpectMissing(packed_, ".weight_scale", ".weight_scale' beside it");
  ExpectMissing(packed_, ".weight_shape", ".weight_shape' beside it");
  ExpectMissing(packed_, ".weight_zero_point", ".weight_zero_point' beside it");
  ExpectMissing(fp8_, ".weight_scale_inv", "neither '" + kModule + ".weight_scale_inv' nor");
}

TEST_F(BadFolderTest, ShapesAndTypesThatDisagree) {
  const auto reshape = [](const std::vector<int64_t>& shape) {
    return [shape](FolderTensor* tensor) { tensor->shape = shape; };
  };
  Expect(awq_, ".scales", reshape({128, 4}),
         "has shape [128, 4], [128, 256] of 4 bits in groups of 64 wants [4, 128]");
  Expect(awq_, ".qzeros", reshape({16, 4}), "has shape [16, 4]");
  Expect(awq_, ".qweight", reshape({256 * 16}), "not that of a matrix");
  Expect(gptq_, ".g_idx", reshape({2, 128}), "has 256 columns of 4 bits");
  Expect(packed_, ".weight_zero_point", reshape({4, 16}), "wants [16, 4]");
  Expect(packed_, ".weight_scale", reshape({512, 1}),
         "has 256 columns of 4 bits in groups of 256, which is none of the schemes of");
  Expect(fp8_, ".weight_scale_inv", reshape({2, 1}), "[128, 256] in blocks of 128 x 128 wants [1, 2]");
  Expect(
      gptq_, ".qweight", [](FolderTensor* tensor) { tensor->dtype = "F32"; }, "is stored as F32, not as I32");
  Expect(
      gptq_, ".scales", [](FolderTensor* tensor) { tensor->dtype = "I16"; },
      "is stored as I16, not as F32, F16 or BF16");
  const std::string wrong_model =
      ErrorOf(gptq_, [](QuantizedFolder* folder) { folder->config["intermediate_size"] = 192; });
  EXPECT_THAT(wrong_model, HasSubstr("the configuration wants"));
}

TEST_F(BadFolderTest, BitsAndGroupsThatDisagreeWithTheConfiguration) {
  const auto with = [&](const QuantizedFolderForm& form, const nlohmann::json& change) {
    return ErrorOf(form,
                   [&](QuantizedFolder* folder) { folder->config["quantization_config"].update(change); });
  };
  EXPECT_THAT(with(gptq_, {{"bits", 8}}), HasSubstr("g_idx' has shape [128], 'model.layers.0"));
  EXPECT_THAT(with(gptq_, {{"group_size", 32}}), HasSubstr("in groups of 32 wants [4, 128]"));
  EXPECT_THAT(with(awq_, {{"group_size", 96}}),
              HasSubstr("has 128 columns, which groups of 96 do not divide"));
  EXPECT_THAT(
      with(packed_,
           {{"config_groups",
             {{"g",
               {{"weights",
                 {{"num_bits", 8}, {"strategy", "group"}, {"group_size", 64}, {"symmetric", false}}}}}}}}),
      HasSubstr("has 128 columns of 4 bits in groups of 64, which is none of the schemes of"));
  EXPECT_THAT(with(fp8_, {{"weight_block_size", nullptr}}), HasSubstr("needs one scale, or one a row"));
}

// Rows of 576, as SmolLM2 has them.
TEST_F(BadFolderTest, GroupsOf128DoNotDivideRowsOf576) {
  const QuantizedFolderShape shape = {.hidden = 576, .heads = 9, .kv_heads = 3};
  for (const Kind kind : {Kind::kAwq, Kind::kGptq}) {
    QuantizedFolder folder = MakeQuantizedFolder({.name = "g", .kind = kind, .group_size = 64}, shape);
    folder.config["quantization_config"]["group_size"] = 128;
    const TemporaryFolder to;
    const auto checkpoint = OpenQuantized(to, folder);
    ASSERT_FALSE(checkpoint.ok());
    EXPECT_EQ(checkpoint.error().code, ErrorCode::kMalformedFile);
    EXPECT_THAT(checkpoint.error().message,
                HasSubstr("q_proj.qweight' has 576 columns, which groups of 128 do not divide"));
  }
}

TEST_F(BadFolderTest, ScalesZerosAndCodesThatAreNoNumbers) {
  for (const auto& [bits, name] :
       {std::pair<uint16_t, std::string>{0, "0"}, {0xfc00, "-inf"}, {0x7e00, "nan"}, {0x8000, "-0"}}) {
    for (const QuantizedFolderForm* form : {&awq_, &gptq_})
      Expect(
          *form, ".scales", [bits = bits](FolderTensor* tensor) { PutHalf(tensor, bits); },
          "has the scale " + name + " at place 5");
    Expect(
        packed_, ".weight_scale", [bits = bits](FolderTensor* tensor) { PutHalf(tensor, bits); },
        "has the scale " + name + " at place 5");
  }
  Expect(
      fp8_, ".weight", [](FolderTensor* tensor) { tensor->data[300] = '\xff'; },
      "has a value that is no number in row 1");
  Expect(
      fp8_, ".weight_scale_inv", [](FolderTensor* tensor) { std::memset(tensor->data.data() + 4, 0, 4); },
      "has the scale 0 at place 1");
  Expect(
      gptq_, ".qzeros", [](FolderTensor* tensor) { tensor->data[1] = '\x56'; },
      "has the zero point 7 in group 0 of row 2, the configuration says that weights are symmetric");
}

TEST_F(BadFolderTest, GroupsOfColumns) {
  const auto put = [](int32_t at, int32_t group) {
    return [=](FolderTensor* tensor) { std::memcpy(tensor->data.data() + 4 * at, &group, sizeof(group)); };
  };
  Expect(gptq_, ".g_idx", put(7, 4), "puts column 7 into group 4 of 4");
  Expect(gptq_, ".g_idx", put(7, -1), "puts column 7 into group -1 of 4");
  Expect(gptq_, ".g_idx", put(7, 1), "puts more than 64 columns into group 1");
}

}  // namespace
}  // namespace tandem
