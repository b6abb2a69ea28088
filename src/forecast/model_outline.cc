#include "forecast/model_outline.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "base/param_error.h"
#include "engine/backend.h"
#include "load/checkpoint.h"
#include "load/dummy_models.h"
#include "model/weight_formats.h"

namespace tandem {
namespace {

int64_t NumWeights(const ModelOutline& outline) {
  return outline.config.num_layers * outline.layer_weights() + 2 * outline.lm_head_weights();
}

// Groups of 128 with a scale and a minimum of 16 bits each; FP8 with a scale a row.
double BytesPerWeight(Quantization quantization) {
  constexpr double kGroup = 128;
  switch (quantization) {
    case Quantization::kInt4:
      return 0.5 + 4 / kGroup;
    case Quantization::kInt8:
      return 1 + 4 / kGroup;
    case Quantization::kFp8:
      return 1;
    default:
      return 2;
  }
}

Result<ModelOutline> OutlineCheckpoint(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  EngineOptions options;
  options.device = "host";
  options.quantization = Quantization::kKeep;
  TANDEM_ASSIGN_OR_RETURN(const Backend backend, CreateBackend(options));
  TANDEM_ASSIGN_OR_RETURN(
      const WeightsEstimate weights,
      EstimateWeights(*checkpoint, {.quantization = Quantization::kKeep, .dtype = DType::kBF16},
                      *backend.ops));
  ModelOutline outline = {.name = path,
                          .config = checkpoint->config(),
                          .quantization = Quantization::kKeep,
                          .form = weights.form};
  outline.bytes_per_weight = static_cast<double>(weights.bytes) / static_cast<double>(NumWeights(outline));
  return outline;
}

}  // namespace

int64_t ModelOutline::layer_weights() const {
  return config.hidden_size * (config.qkv_width() + config.q_width() + 3 * config.intermediate_size);
}

int64_t ModelOutline::weight_bytes() const {
  return static_cast<int64_t>(bytes_per_weight * static_cast<double>(NumWeights(*this)));
}

Result<ModelOutline> OutlineModel(const std::string& name) {
  const auto config = DummyModelConfig(name);
  if (config.ok()) {
    TANDEM_ASSIGN_OR_RETURN(const DummyName parsed, ParseDummyName(name));
    const bool plain = parsed.quantization == Quantization::kAuto;
    return ModelOutline{.name = name,
                        .config = *config,
                        .quantization = plain ? Quantization::kNone : parsed.quantization,
                        .form = plain ? "16 bits" : std::string(QuantizationName(parsed.quantization)),
                        .bytes_per_weight = BytesPerWeight(parsed.quantization)};
  }
  std::error_code ignored;
  if (std::filesystem::exists(name, ignored)) return OutlineCheckpoint(name);
  return MakeParamError(
      ErrorCode::kNotFound, "model",
      "'{}' is neither a file or folder nor a shape, of which there are {} (also with :int4, "
      ":int8 or :fp8 behind them)",
      name, fmt::join(DummyModelNames(), ", "));
}

}  // namespace tandem
