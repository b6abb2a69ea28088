#include "model/weight_formats.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "load/files_testing.h"
#include "load/quantized_folder_testing.h"

namespace tandem {
namespace {

using Kind = QuantizedFolderForm::Kind;

class FolderFormatsTest : public testing::Test {
 protected:
  std::unique_ptr<Checkpoint> Open(const QuantizedFolder& folder) {
    to_.Write("config.json", folder.config.dump());
    to_.Write("model.safetensors", SafetensorsOf(folder.tensors));
    return Checkpoint::Open(to_.path()).value();
  }

  WeightFormat FormatOf(const Checkpoint& checkpoint, const std::vector<std::string>& modules,
                        Quantization quantization = Quantization::kAuto) {
    std::vector<std::string> tensors;
    tensors.reserve(modules.size());
    for (const std::string& module : modules) tensors.push_back("model.layers.0." + module + ".weight");
    return StoredWeightFormat(checkpoint, tensors, false, {quantization, DType::kF32}, *ops_).value();
  }

  const std::vector<std::string> qkv_ = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  const TemporaryFolder to_;
  const std::unique_ptr<Ops> ops_ = CreateHostOps();
};

// One product reads x in one order: weights of several orders are widened, those beside them are not.
TEST_F(FolderFormatsTest, OrdersThatDifferWidenTheWeight) {
  QuantizedFolder folder =
      MakeQuantizedFolder({.name = "g", .kind = Kind::kGptq, .group_size = 32, .is_act_order = true});
  const auto same = Open(folder);
  EXPECT_EQ(FormatOf(*same, qkv_), Int4Format(32, false));
  std::string& groups = folder.Find("model.layers.0.self_attn.k_proj.g_idx")->data;
  std::swap_ranges(groups.begin(), groups.begin() + 64, groups.begin() + 128);
  const auto different = Open(folder);
  EXPECT_FALSE(FormatOf(*different, qkv_).is_quantized());
  EXPECT_EQ(FormatOf(*different, {"self_attn.o_proj"}), Int4Format(32, false));
  EXPECT_EQ(FormatOf(*different, {"mlp.gate_proj", "mlp.up_proj"}), Int4Format(32, false));
  const auto vocabulary =
      StoredWeightFormat(*same, {"model.layers.0.self_attn.o_proj.weight"}, true, {}, *ops_);
  EXPECT_FALSE(vocabulary->is_quantized()) << "the embedding is read by rows";
}

TEST_F(FolderFormatsTest, Fp8StaysOrIsQuantizedAnew) {
  const auto checkpoint =
      Open(MakeQuantizedFolder({.name = "f", .kind = Kind::kFp8, .block_size = 128, .scale_dtype = "F32"}));
  EXPECT_EQ(FormatOf(*checkpoint, qkv_), Fp8Format(128));
  EXPECT_EQ(FormatOf(*checkpoint, qkv_, Quantization::kFp8), Fp8Format(128)) << "as in the file";
  EXPECT_FALSE(FormatOf(*checkpoint, qkv_, Quantization::kNone).is_quantized());
  EXPECT_EQ(FormatOf(*checkpoint, qkv_, Quantization::kInt8), Int8Format(32, false));
  EXPECT_EQ(FormatOf(*checkpoint, qkv_, Quantization::kInt4), Int4Format(32, true));
}

}  // namespace
}  // namespace tandem
