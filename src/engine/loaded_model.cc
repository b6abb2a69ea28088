#include "engine/loaded_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/param_error.h"
#include "base/topology.h"
#include "engine/shard_nodes.h"
#include "engine/shard_setup.h"
#include "engine/shards.h"
#include "load/dummy_models.h"
#include "load/rope_scaling.h"
#include "model/dummy_weights.h"
#include "model/shard_slices.h"
#include "text/tokenizer/byte_tokenizer.h"

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

Status FillDefaults(const ModelConfig& config, const Backend& backend, EngineOptions* options) {
  if (options->served_model_name.empty())
    options->served_model_name = options->dummy.empty() ? NameOf(options->model) : options->dummy;
  if (!options->dtype) options->dtype = backend.dtypes.front();
  if (std::find(backend.dtypes.begin(), backend.dtypes.end(), *options->dtype) == backend.dtypes.end()) {
    std::vector<std::string_view> names;
    for (const DType dtype : backend.dtypes) names.push_back(DTypeName(dtype));
    return MakeParamError(ErrorCode::kUnsupported, "dtype", "the {} backend computes in {}, not in {}",
                          backend.device->backend(), fmt::join(names, " or "), DTypeName(*options->dtype));
  }
  const int64_t trained_len = config.max_position;
  if (options->max_model_len <= 0) {
    options->max_model_len = trained_len;
  } else if (options->max_model_len > trained_len) {
    return MakeParamError(ErrorCode::kInvalidArgument, "max-model-len",
                          "max-model-len {} is more than the model's context of {} tokens{}",
                          options->max_model_len, trained_len,
                          options->rope_scaling ? "" : " (--rope-scaling stretches it)");
  }
  if (options->rope_scaling)
    LogInfo("rotary embeddings: {}, for a context of {} tokens", DescribeRopeScaling(config.rope_scaling),
            trained_len);
  if (options->max_num_batched_tokens <= 0)
    options->max_num_batched_tokens = backend.default_max_num_batched_tokens;
  // Every running sequence needs a row an iteration.
  options->max_num_seqs = std::clamp<int64_t>(options->max_num_seqs, 1, options->max_num_batched_tokens);
  return {};
}

// What options want of this model, settled before weights are read: that may take minutes.
Status SettleOptions(const ModelConfig& config, EngineOptions* options, LoadedModel* loaded) {
  TANDEM_RETURN_IF_ERROR(FillDefaults(config, loaded->backend, options));
  TANDEM_ASSIGN_OR_RETURN(loaded->kv_formats, KvFormatsOf(*options, *options->dtype, config.head_dim));
  return {};
}

bool SpeaksText(const LoadedModel& loaded) {
  return loaded.processes == nullptr || loaded.processes->shard().rank == 0;
}

int NumLoaderThreads(const EngineOptions& options) {
  return options.cpu_threads > 0 ? options.cpu_threads : MachineTopology().num_physical_cores;
}

Status TakeTextSide(const TextSide& side, const EngineOptions& options, LoadedModel* loaded) {
  TANDEM_ASSIGN_OR_RETURN(loaded->tokenizer, LoadTokenizer(side.source));
  loaded->generation_defaults = side.generation_defaults;
  if (side.source.chat_template.empty()) return {};
  auto parsed = ChatTemplate::Parse(side.source.chat_template);
  if (parsed.ok()) {
    loaded->chat_template = std::move(parsed).value();
  } else {
    // Completions still work without it.
    LogWarn("{}: the chat template cannot be used: {}",
            options.tokenizer.empty() ? options.model : options.tokenizer, parsed.error().message);
  }
  return {};
}

// --tokenizer: of another model.
Status TakeOtherTextSide(const EngineOptions& options, int64_t vocab_size, LoadedModel* loaded) {
  TANDEM_ASSIGN_OR_RETURN(const TextSide side, ReadTextSide(options.tokenizer));
  TANDEM_RETURN_IF_ERROR(TakeTextSide(side, options, loaded));
  if (loaded->tokenizer->vocab_size() > vocab_size) {
    return MakeParamError(ErrorCode::kInvalidArgument, "tokenizer",
                          "the tokenizer of {} has {} tokens, more than the model's {}", options.tokenizer,
                          loaded->tokenizer->vocab_size(), vocab_size);
  }
  return {};
}

// NAME:int4 of --dummy says what --quantization int4 does.
Status TakeDummyQuantization(EngineOptions* options) {
  TANDEM_ASSIGN_OR_RETURN(const DummyName name, ParseDummyName(options->dummy));
  if (name.quantization != Quantization::kAuto) {
    if (options->quantization != Quantization::kAuto && options->quantization != name.quantization) {
      return MakeParamError(ErrorCode::kInvalidArgument, "quantization", "'{}' and {} were both given",
                            options->dummy, QuantizationName(options->quantization));
    }
    options->quantization = name.quantization;
  }
  return {};
}

// load: of a shard, its weights. One after the other: each has all threads.
template <typename Load>
Status LoadShards(const ModelConfig& config, const EngineOptions& options, LoadedModel* loaded,
                  const Load& load) {
  loaded->config = config;
  loaded->num_shards = options.tensor_parallel_size;
  const auto num_here = loaded->on_host ? size_t{1} : static_cast<size_t>(options.tensor_parallel_size);
  if (loaded->num_shards > 1) {
    // Where processes make it together, all have come that far.
    if (loaded->backend.num_elsewhere > 0)
      TANDEM_RETURN_IF_ERROR(AgreeThatAllIsWell(loaded->processes, Status()));
    TANDEM_ASSIGN_OR_RETURN(loaded->collectives, CreateCollectives(loaded->backend, options));
  }
  CollectiveGroup* const exchange = loaded->exchange();
  for (size_t i = 0; i < num_here; ++i) {
    const Shard shard = loaded->ShardAt(i);
    TANDEM_ASSIGN_OR_RETURN(DecoderWeights weights, load(shard));
    Collective* const collective =
        exchange == nullptr ? nullptr : exchange->Of(shard.rank, ShardChannel::kCompute);
    loaded->shards.push_back(std::make_unique<Decoder>(
        ConfigOf(config, shard), *options.dtype, std::move(weights), loaded->backend.OpsOf(shard.rank),
        ShardedDecoder{.vocab = SlicesOf(config, shard).vocab, .collective = collective}));
  }
  return {};
}

// Slices are shards, and of one GPU: on slices of two GPUs sums over them do not end.
Status SettleSlices(EngineOptions* options) {
  const bool has_slices = options->gpu_sm_slices > 0;
  if (!has_slices && options->gpu_sm_limit > 0 && options->tensor_parallel_size > 1 &&
      options->lone_shard.empty()) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, "gpu-sm-limit",
        "gpu-sm-limit {} cuts one GPU, and {} shards have a GPU each; gpu-sm-slices {} puts "
        "them on slices of one",
        options->gpu_sm_limit, options->tensor_parallel_size, options->tensor_parallel_size);
  }
  if (!has_slices) return {};
  if (options->device != "cuda") {
    return MakeParamError(ErrorCode::kInvalidArgument, "gpu-sm-slices",
                          "gpu-sm-slices {} needs --device cuda", options->gpu_sm_slices);
  }
  if (options->tensor_parallel_size == 1) options->tensor_parallel_size = options->gpu_sm_slices;
  if (options->gpu_sm_slices < 2 || options->tensor_parallel_size != options->gpu_sm_slices) {
    return MakeParamError(ErrorCode::kInvalidArgument, "gpu-sm-slices",
                          "gpu-sm-slices {} is not a number of shards, of which there are {}",
                          options->gpu_sm_slices, options->tensor_parallel_size);
  }
  return {};
}

// A figure, not a model: what one shard computes alone means nothing.
Status CheckLoneShard(const EngineOptions& options) {
  if (options.lone_shard.empty()) return {};
  const auto refuse = [](std::string_view why) {
    return MakeParamError(ErrorCode::kInvalidArgument, "lone-shard", "lone-shard {}", why);
  };
  if (options.dummy.empty()) return refuse("makes no answers: it needs --dummy");
  if (options.tensor_parallel_size == 1) return refuse("needs --tensor-parallel-size of two and more");
  if (options.gpu_sm_slices > 0 || options.processes != nullptr)
    return refuse("is without other shards, on slices or in processes");
  return {};
}

// Random weights; tokens are bytes unless options name a tokenizer.
Status LoadDummy(EngineOptions* options, LoadedModel* loaded) {
  TANDEM_ASSIGN_OR_RETURN(const ModelConfig config, DummyConfigOf(*options));
  TANDEM_RETURN_IF_ERROR(SettleOptions(config, options, loaded));
  if (!SpeaksText(*loaded)) {
    // Rank 0 does.
  } else if (options->tokenizer.empty()) {
    TANDEM_ASSIGN_OR_RETURN(loaded->tokenizer, MakeByteTokenizer(config.vocab_size));
  } else {
    TANDEM_RETURN_IF_ERROR(TakeOtherTextSide(*options, config.vocab_size, loaded));
  }
  return LoadShards(config, *options, loaded, [&](const Shard& shard) {
    return MakeDummyWeights(config, loaded->backend.DeviceOf(shard.rank), loaded->backend.OpsOf(shard.rank),
                            {.shard = shard,
                             .dtype = *options->dtype,
                             .quantization = options->quantization,
                             .max_model_len = options->max_model_len,
                             .seed = options->seed,
                             .show_progress = options->show_progress});
  });
}

Status LoadFromCheckpoint(EngineOptions* options, const Checkpoint& checkpoint, LoadedModel* loaded) {
  TANDEM_RETURN_IF_ERROR(SettleOptions(checkpoint.config(), options, loaded));
  if (SpeaksText(*loaded)) {
    TANDEM_RETURN_IF_ERROR(options->tokenizer.empty()
                               ? TakeTextSide(checkpoint.text_side(), *options, loaded)
                               : TakeOtherTextSide(*options, checkpoint.config().vocab_size, loaded));
  }
  return LoadShards(checkpoint.config(), *options, loaded, [&](const Shard& shard) {
    return LoadDecoderWeights(checkpoint, loaded->backend.DeviceOf(shard.rank),
                              loaded->backend.OpsOf(shard.rank),
                              {.shard = shard,
                               .dtype = *options->dtype,
                               .quantization = options->quantization,
                               .max_model_len = options->max_model_len,
                               .num_threads = NumLoaderThreads(*options),
                               .show_progress = options->show_progress});
  });
}

}  // namespace

Result<ModelConfig> DummyConfigOf(const EngineOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(ModelConfig config, DummyModelConfig(options.dummy));
  if (options.rope_scaling) TANDEM_RETURN_IF_ERROR(OverrideRopeScaling(*options.rope_scaling, &config));
  return config;
}

namespace {

Status LoadHere(EngineOptions* options, LoadedModel* loaded) {
  std::unique_ptr<Checkpoint> checkpoint;
  TANDEM_RETURN_IF_ERROR(CheckLoneShard(*options));
  TANDEM_RETURN_IF_ERROR(SettleSlices(options));
  // What is wrong with the model is said before the device is touched.
  if (options->dummy.empty()) {
    TANDEM_ASSIGN_OR_RETURN(checkpoint, Checkpoint::Open(options->model, options->rope_scaling));
    TANDEM_RETURN_IF_ERROR(CheckShards(checkpoint->config(), options->tensor_parallel_size));
  } else {
    TANDEM_ASSIGN_OR_RETURN(const ModelConfig config, DummyConfigOf(*options));
    TANDEM_RETURN_IF_ERROR(CheckShards(config, options->tensor_parallel_size));
    TANDEM_RETURN_IF_ERROR(TakeDummyQuantization(options));
  }
  TANDEM_ASSIGN_OR_RETURN(loaded->backend, CreateBackend(*options));
  return checkpoint ? LoadFromCheckpoint(options, *checkpoint, loaded) : LoadDummy(options, loaded);
}

// On the nodes next to their GPUs. Those of processes are all on one host; on the host backend none has a
// node.
Status PlaceShards(LoadedModel* loaded) {
  const int num_here = loaded->PlaceOf(loaded->ShardAt(0)).size;
  std::vector<int> gpu_nodes(static_cast<size_t>(num_here), -1);
  if (loaded->backend.num_elsewhere > 0) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> of_all,
                            OfAllProcesses(loaded->processes, loaded->backend.device->numa_node()));
    gpu_nodes.assign(of_all.begin(), of_all.end());
  } else if (loaded->processes == nullptr) {
    for (size_t rank = 0; rank < gpu_nodes.size(); ++rank)
      gpu_nodes[rank] = loaded->backend.DeviceOf(static_cast<int>(rank))->numa_node();
  }
  loaded->shard_nodes = NodesOfShards(MachineTopology().numa_nodes, gpu_nodes);
  if (!loaded->shard_nodes.front().empty())
    LogInfo("cpu tiers and CPU attention of the shards are on the NUMA nodes of their GPUs: {}",
            fmt::join(gpu_nodes, ", "));
  return {};
}

}  // namespace

Result<LoadedModel> LoadModel(EngineOptions* options) {
  LoadedModel loaded;
  loaded.processes = options->processes;
  loaded.on_host = PlaceOnHost(*options);
  TANDEM_RETURN_IF_ERROR(AgreeThatAllIsWell(options->processes, LoadHere(options, &loaded)));
  if (loaded.backend.num_elsewhere > 0) {
    const size_t own_bytes = FreeMemory(*loaded.backend.device).device_bytes;
    TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> free_bytes,
                            OfAllProcesses(options->processes, static_cast<int64_t>(own_bytes)));
    loaded.backend.free_elsewhere_bytes = std::ranges::min(free_bytes);
  }
  TANDEM_RETURN_IF_ERROR(PlaceShards(&loaded));
  return loaded;
}

}  // namespace tandem
