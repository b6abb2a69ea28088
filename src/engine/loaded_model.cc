#include "engine/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/cpu_features.h"
#include "base/log.h"
#include "base/param_error.h"
#include "base/topology.h"

namespace tandem {
namespace {

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const TextSource& source) {
  switch (source.kind) {
    case TextSource::Kind::kTokenizerJson:
      return Tokenizer::FromTokenizerJson(source.path, source.tokenizer_config_path);
    case TextSource::Kind::kSentencePiece:
      return Tokenizer::FromSentencePiece(source.path, source.tokenizer_config_path);
    case TextSource::Kind::kGguf:
      break;
  }
  return Tokenizer::FromGguf(source.path);
}

// The last part of the path, without ".gguf".
std::string NameOf(const std::string& model) {
  std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  if (path.extension() == ".gguf") path = path.stem();
  return path.filename().string();
}

Status FillDefaults(const Checkpoint& checkpoint, const Backend& backend, EngineOptions* options) {
  if (options->served_model_name.empty()) options->served_model_name = NameOf(options->model);
  if (!options->dtype) options->dtype = HostCpuFeatures().avx512_bf16 ? DType::kBF16 : DType::kF32;
  if (*options->dtype != DType::kBF16 && *options->dtype != DType::kF32) {
    return MakeParamError(ErrorCode::kUnsupported, "dtype",
                          "the host backend computes in bf16 or fp32, not in {}", DTypeName(*options->dtype));
  }
  const int64_t trained_len = checkpoint.config().max_position;
  if (options->max_model_len <= 0) {
    options->max_model_len = trained_len;
  } else if (options->max_model_len > trained_len) {
    return MakeParamError(ErrorCode::kInvalidArgument, "max-model-len",
                          "max-model-len {} is more than the model's context of {} tokens",
                          options->max_model_len, trained_len);
  }
  if (options->max_num_batched_tokens <= 0)
    options->max_num_batched_tokens = backend.default_max_num_batched_tokens;
  // Every running sequence needs a row an iteration.
  options->max_num_seqs = std::clamp<int64_t>(options->max_num_seqs, 1, options->max_num_batched_tokens);
  return {};
}

}  // namespace

Result<LoadedModel> LoadModel(EngineOptions* options) {
  LoadedModel loaded;
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options->model));
  TANDEM_ASSIGN_OR_RETURN(loaded.backend, CreateBackend(options->device, options->cpu_threads));
  TANDEM_RETURN_IF_ERROR(FillDefaults(*checkpoint, loaded.backend, options));
  TANDEM_ASSIGN_OR_RETURN(loaded.tokenizer, LoadTokenizer(checkpoint->text_source()));
  loaded.generation_defaults = checkpoint->generation_defaults();

  const std::string& template_source = checkpoint->text_source().chat_template;
  if (!template_source.empty()) {
    auto parsed = ChatTemplate::Parse(template_source);
    if (parsed.ok()) {
      loaded.chat_template = std::move(parsed).value();
    } else {
      // Completions still work without it.
      LogWarn("{}: the chat template cannot be used: {}", options->model, parsed.error().message);
    }
  }

  const int num_threads =
      options->cpu_threads > 0 ? options->cpu_threads : MachineTopology().num_physical_cores;
  TANDEM_ASSIGN_OR_RETURN(
      DecoderWeights weights,
      LoadDecoderWeights(*checkpoint, loaded.backend.device.get(), loaded.backend.ops.get(),
                         {.dtype = *options->dtype,
                          .max_model_len = options->max_model_len,
                          .num_threads = num_threads,
                          .show_progress = options->show_progress}));
  loaded.decoder = std::make_unique<Decoder>(checkpoint->config(), *options->dtype, std::move(weights),
                                             loaded.backend.ops.get());
  return loaded;
}

}  // namespace tandem
