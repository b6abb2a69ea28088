#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "engine/engine.h"
#include "load/files_testing.h"
#include "load/quantized_folder_testing.h"

namespace tandem {
namespace {

// What `tandem doctor FOLDER` and `tandem serve FOLDER` say of a model that is not served, in one sentence
// each.
TEST(DoctorTest, MixturesOfExpertsAreRefusedByName) {
  struct Mixture {
    std::string architecture;
    std::string experts_field;
    std::string said;
  };
  for (const Mixture& mixture :
       {Mixture{"Qwen3MoeForCausalLM", "num_experts", "Qwen3 MoE ('Qwen3MoeForCausalLM')"},
        Mixture{"GptOssForCausalLM", "num_local_experts", "gpt-oss ('GptOssForCausalLM')"}}) {
    const TemporaryFolder folder;
    const nlohmann::json config = {{"architectures", {mixture.architecture}}, {mixture.experts_field, 128}};
    folder.Write("config.json", config.dump());
    const std::string wanted = "models of the family " + mixture.said +
                               " are mixtures of 128 experts, which are not served; dense ones are";
    DoctorOptions doctor;
    doctor.model = folder.path();
    const Status said = Doctor(doctor);
    ASSERT_FALSE(said.ok());
    EXPECT_EQ(said.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(said.error().message, testing::EndsWith(wanted));
    EngineOptions serve;
    serve.model = folder.path();
    const auto engine = Engine::Create(serve);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().message, said.error().message);
  }
}

TEST(DoctorTest, ListsTheFormsOfAModel) {
  const TemporaryFolder to;
  const QuantizedFolder folder = MakeQuantizedFolder(
      {.name = "a", .kind = QuantizedFolderForm::Kind::kAwq, .group_size = 128, .is_symmetric = false});
  to.Write("config.json", folder.config.dump());
  to.Write("model.safetensors", SafetensorsOf(folder.tensors));
  DoctorOptions options;
  options.model = to.path();
  options.dtype = DType::kF32;
  options.json = true;
  testing::internal::CaptureStdout();
  const Status said = Doctor(options);
  const nlohmann::json report = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  ASSERT_TRUE(said.ok()) << said.error().message;
  nlohmann::json of_host;
  for (const nlohmann::json& form : report.at("model").at("forms")) {
    if (form.at("device") == "host") of_host[form.at("quantization").get<std::string>()] = form;
  }
  EXPECT_EQ(of_host.at("keep").at("weights"), "int4, groups of 128 with zero point");
  EXPECT_EQ(of_host.at("none").at("weights"), "fp32");
  for (const char* quantization : {"keep", "none", "int4", "int8"}) {
    SCOPED_TRACE(quantization);
    const nlohmann::json& form = of_host.at(quantization);
    EXPECT_TRUE(form.at("fits").get<bool>());
    EXPECT_GT(form.at("gpu_kv_tokens").get<int64_t>(), 1000);
    EXPECT_GT(form.at("cpu_kv_tokens").get<int64_t>(), 1000);
  }
  EXPECT_LT(of_host.at("keep").at("weight_bytes"), of_host.at("none").at("weight_bytes"));
}

}  // namespace
}  // namespace tandem
