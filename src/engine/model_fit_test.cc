#include "engine/model_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/sized_device_testing.h"
#include "load/files_testing.h"
#include "load/quantized_folder_testing.h"

namespace tandem {
namespace {

using Kind = QuantizedFolderForm::Kind;
constexpr int64_t kMiB = int64_t{1} << 20;

class ModelFitTest : public ::testing::Test {
 protected:
  ModelFitTest() {
    // 2 layers of 256 wide: 2 * 589,824 weights beside 96 * 256 twice.
    const QuantizedFolder folder =
        MakeQuantizedFolder({.name = "g", .kind = Kind::kGptq, .group_size = 128, .is_symmetric = false},
                            {.hidden = 256, .intermediate = 512});
    to_.Write("config.json", folder.config.dump());
    to_.Write("model.safetensors", SafetensorsOf(folder.tensors));
    checkpoint_ = Checkpoint::Open(to_.path()).value();
  }

  // Of kMiB multiples. shared: of a backend without memory of its own.
  std::vector<ModelFit> Fits(int64_t device_mib, int64_t host_mib, bool shared, int64_t workspace_mib = 0) {
    Backend backend;
    backend.device = std::make_unique<SizedDevice>(device_mib * kMiB, host_mib * kMiB, shared);
    backend.ops = CreateHostOps();
    backend.workspace_bytes = static_cast<size_t>(workspace_mib * kMiB);
    return FitModel(*checkpoint_, backend, DType::kBF16);
  }
  static ModelFit Of(const std::vector<ModelFit>& fits, Quantization quantization) {
    const auto found = std::ranges::find(fits, quantization, &ModelFit::quantization);
    return found == fits.end() ? ModelFit{} : *found;
  }

  const TemporaryFolder to_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

// A token takes 2 layers * 2 * 128 * 2 bytes = 1 KiB, a block 32 KiB.
constexpr int64_t kTokensPerMiB = 1024;

TEST_F(ModelFitTest, SaysTheFormAndTheTokensOfBothTiers) {
  const std::vector<ModelFit> fits = Fits(8, 100, false, 1);
  const ModelFit keep = Of(fits, Quantization::kKeep);
  EXPECT_EQ(keep.error, "");
  EXPECT_EQ(keep.weights, "int4, groups of 128 with zero point");
  const ModelFit none = Of(fits, Quantization::kNone);
  EXPECT_EQ(none.weights, "bf16");
  constexpr int64_t kVocabularyBytes = 2 * 96 * 256 * 2;
  const int64_t num_weights = (none.weight_bytes - kVocabularyBytes) / 2;
  EXPECT_EQ(keep.weight_bytes - kVocabularyBytes, num_weights / 2 + num_weights / 128 * 4);
  for (const ModelFit& fit : {keep, none}) {
    const int64_t left = 8 * kMiB - kMiB - fit.weight_bytes;
    EXPECT_EQ(fit.gpu_kv_tokens, left / (32 << 10) * 32);
    EXPECT_EQ(fit.cpu_kv_tokens, 50 * kTokensPerMiB) << "half of the host's memory";
  }
  // Floats beside the codes are quantized too; the codes stay.
  EXPECT_LT(Of(fits, Quantization::kInt4).weight_bytes, keep.weight_bytes);
}

TEST_F(ModelFitTest, TiersShareAMemory) {
  const ModelFit fit = Of(Fits(64, 64, true), Quantization::kKeep);
  EXPECT_EQ(fit.error, "");
  EXPECT_GT(fit.gpu_kv_tokens, 10 * kTokensPerMiB);
  EXPECT_GT(fit.cpu_kv_tokens, 0);
  EXPECT_LT(fit.gpu_kv_tokens + fit.cpu_kv_tokens, 64 * kTokensPerMiB - fit.weight_bytes / kTokensPerMiB);
}

TEST_F(ModelFitTest, SaysWhatDoesNotFit) {
  // Room for the codes, and not for the floats.
  const std::vector<ModelFit> fits = Fits(2, 100, false);
  EXPECT_EQ(Of(fits, Quantization::kKeep).error, "");
  EXPECT_EQ(Of(fits, Quantization::kNone).error, "the weights take 2 MiB, 2 MiB are free");
  EXPECT_EQ(Of(fits, Quantization::kNone).gpu_kv_tokens, 0);
  EXPECT_EQ(Of(Fits(64, 0, false), Quantization::kKeep).cpu_kv_tokens, 0);
}

TEST_F(ModelFitTest, FloatsHaveNothingToKeep) {
  QuantizedFolder folder = MakeQuantizedFolder({.name = "g", .kind = Kind::kGptq, .group_size = 128});
  folder.config.erase("quantization_config");
  to_.Write("config.json", folder.config.dump());
  to_.Write("model.safetensors", SafetensorsOf(folder.floats));
  checkpoint_ = Checkpoint::Open(to_.path()).value();
  const std::vector<ModelFit> fits = Fits(64, 64, false);
  EXPECT_EQ(std::ranges::count(fits, Quantization::kKeep, &ModelFit::quantization), 0);
  EXPECT_EQ(Of(fits, Quantization::kInt4).weights, "int4, groups of 32 with minimum");
  EXPECT_LT(Of(fits, Quantization::kInt8).weight_bytes, Of(fits, Quantization::kNone).weight_bytes);
}

TEST_F(ModelFitTest, CodesHaveNothingToQuantize) {
  std::vector<TinyTensor> tensors = TinyLlamaTensors();
  for (TinyTensor& tensor : tensors) {
    if (tensor.dims.size() != 2) continue;
    tensor.type = GgmlType::kQ8_0;
    tensor.data = std::string(tensor.dims[0] * tensor.dims[1] / 32 * 34, '\0');
  }
  checkpoint_ = Checkpoint::Open(to_.Write("model.gguf", TinyLlamaGguf(tensors).bytes())).value();
  const std::vector<ModelFit> fits = Fits(64, 64, false);
  ASSERT_EQ(fits.size(), 2U);
  EXPECT_EQ(fits[0].quantization, Quantization::kKeep);
  EXPECT_EQ(fits[0].weights, "int8, groups of 32");
  EXPECT_EQ(fits[1].quantization, Quantization::kNone);
}

TEST_F(ModelFitTest, FewestShardsHoldWeightsAndSomeTokens) {
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  const std::vector<int> counts = {1, 2, 4, 8};
  constexpr int64_t kKvBytes = 320 << 10;  // 1.25 GiB for 4,096 tokens
  EXPECT_EQ(FewestShards(counts, 14 * kGibibyte, kKvBytes, 22 * kGibibyte), 1);
  EXPECT_EQ(FewestShards(counts, 131 * kGibibyte, kKvBytes, 75 * kGibibyte), 2);
  EXPECT_EQ(FewestShards(counts, 131 * kGibibyte, kKvBytes, 66 * kGibibyte), 4);
  EXPECT_EQ(FewestShards(counts, 131 * kGibibyte, kKvBytes, 16 * kGibibyte), 0);
}

}  // namespace
}  // namespace tandem
