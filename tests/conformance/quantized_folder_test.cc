// Folders of every quantized form give the logits that their dequantized floats give.

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "load/files_testing.h"
#include "load/quantized_folder_testing.h"

namespace tandem {
namespace {

using Kind = QuantizedFolderForm::Kind;

class QuantizedFolderTest : public ::testing::TestWithParam<QuantizedFolderForm> {
 protected:
  void SetUp() override {
    QuantizedFolder folder = MakeQuantizedFolder(GetParam());
    quantized_.Write("config.json", folder.config.dump());
    quantized_.Write("model.safetensors", SafetensorsOf(folder.tensors));
    folder.config.erase("quantization_config");
    floats_.Write("config.json", folder.config.dump());
    floats_.Write("model.safetensors", SafetensorsOf(folder.floats));
  }

  const std::vector<int32_t> prompt_ = {1, 17, 95, 4, 0, 63, 63, 8, 21, 40};
  const TemporaryFolder quantized_;
  const TemporaryFolder floats_;
};

TEST_P(QuantizedFolderTest, LogitsAreThoseOfTheFloats) {
  DecoderHarness floats(floats_.path(), {});
  const std::vector<float> expected = floats.LastLogits(prompt_, 512);
  DecoderHarness widened(quantized_.path(), {.quantization = Quantization::kNone});
  EXPECT_EQ(widened.weights().Describe(), "fp32");
  EXPECT_EQ(widened.LastLogits(prompt_, 512), expected);

  DecoderHarness kept(quantized_.path(), {});
  EXPECT_TRUE(kept.weights().layers[0].down->format().is_quantized());
  EXPECT_TRUE(kept.weights().layers[1].gate_up->format().is_quantized());
  const std::vector<float> logits = kept.LastLogits(prompt_, 512);
  if (GetParam().is_act_order) {
    EXPECT_LT(RelativeDifference(logits, expected), 1e-5) << "sums have another order";
  } else {
    EXPECT_EQ(logits, expected);
  }
  EXPECT_EQ(kept.LastLogits(prompt_, 3), logits);
}

TEST_P(QuantizedFolderTest, Bf16IsNear) {
  DecoderHarness floats(floats_.path(), {});
  DecoderHarness kept(quantized_.path(), {.dtype = DType::kBF16});
  EXPECT_LT(RelativeDifference(kept.LastLogits(prompt_, 512), floats.LastLogits(prompt_, 512)), 3e-2);
}

INSTANTIATE_TEST_SUITE_P(Forms, QuantizedFolderTest, ::testing::ValuesIn(QuantizedFolderForms()),
                         [](const ::testing::TestParamInfo<QuantizedFolderForm>& form) {
                           std::string name = form.param.name;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace tandem
