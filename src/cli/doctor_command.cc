#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/topology.h"
#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/machine_report.h"
#include "cli/memory_bandwidth.h"
#include "engine/backend.h"
#include "engine/cache_sizing.h"
#include "engine/kv_formats.h"
#include "engine/longest_context.h"
#include "engine/model_fit.h"
#include "forecast/units.h"
#include "load/checkpoint.h"
#include "model/shard_slices.h"
#include "model/weight_formats.h"
#include "trial/choice_file.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxBandwidthBuffer = int64_t{1} << 30;
// GPUs of a host.
constexpr int kMostShards = 16;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "always [madvise] never" -> "madvise"
std::string TransparentHugePages() {
  const std::string line = FirstLine("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = line.find('[');
  const size_t end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? "unknown"
                                                                : line.substr(begin + 1, end - begin - 1);
}

int64_t ReservedHugePages() {
  const std::string text = FirstLine("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
  return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10);
}

// What trials of earlier starts have chosen here.
ordered_json KernelsReport() {
  const std::string folder = CacheFolder({});
  if (folder.empty()) return {{"file", nullptr}, {"chosen", ordered_json::array()}};
  const TrialMachine machine = ThisTrialMachine();
  const std::string path = ChoicePath(folder, machine);
  ordered_json report = {{"file", path}, {"chosen", ordered_json::array()}};
  const auto kept = ReadChoices(path, machine);
  if (!kept.ok()) {
    if (kept.error().code != ErrorCode::kNotFound) report["error"] = kept.error().message;
    return report;
  }
  for (const auto& [use, choice] : kept.value().attention) report["chosen"].push_back(Describe(use, choice));
  for (const auto& [use, choice] : kept.value().products) report["chosen"].push_back(Describe(use, choice));
  return report;
}

ordered_json MemoryReport() {
  const Topology& topology = MachineTopology();
  const int64_t available = AvailableMemoryBytes();
  const MemoryBandwidth bandwidth =
      MeasureReadBandwidth(topology.num_physical_cores, std::min(kMaxBandwidthBuffer, available / 4));
  return {{"total_bytes", topology.memory_bytes},
          {"available_bytes", available},
          {"read_bytes_per_s_1_thread", bandwidth.one_thread_bytes_per_s},
          {"read_bytes_per_s_all_threads", bandwidth.all_threads_bytes_per_s},
          {"threads", bandwidth.num_threads},
          {"transparent_huge_pages", TransparentHugePages()},
          {"reserved_2mib_pages", ReservedHugePages()}};
}

// What --device cuda would say, found by asking it: no driver, a driver too old, an architecture that this
// build has no code for.
Result<Backend> CreateCudaBackend() {
  EngineOptions options;
  options.device = "cuda";
  return CreateBackend(options);
}

ordered_json CudaBackendReport(const Result<Backend>& backend) {
  if (!backend.ok()) return {{"ready", false}, {"reason", backend.error().message}};
  return {{"ready", true},
          {"description", backend->device->Description()},
          {"free_bytes", backend->device->FreeBytes(MemoryKind::kDevice)},
          {"workspace_bytes", backend->workspace_bytes},
          {"dtype", DTypeName(backend->dtypes.front())}};
}

int64_t KvBytesOfToken(const ModelConfig& config, const KvFormat& format) {
  const KvShape shape = {.format = format, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
  return config.num_layers * static_cast<int64_t>(shape.TokenBytes());
}

// A model's weights and KV cache in a memory of free_bytes: in the model's type, and in int8, which is as
// large as fp8, where heads are made for it.
Result<ordered_json> FitReport(const Checkpoint& checkpoint, const Backend& backend, DType dtype,
                               int64_t free_bytes) {
  const ModelConfig& config = checkpoint.config();
  TANDEM_ASSIGN_OR_RETURN(const WeightsEstimate weights,
                          EstimateWeights(checkpoint, {.dtype = dtype}, *backend.ops));
  const int64_t weight_bytes = weights.bytes;
  const int64_t kv_bytes = KvBytesOfToken(config, KvFormat::Plain(dtype));
  const int64_t room = std::max<int64_t>(free_bytes - weight_bytes, 0);
  ordered_json report = {{"dtype", DTypeName(dtype)},
                         {"weights", weights.form},
                         {"weight_bytes", weight_bytes},
                         {"free_bytes", free_bytes},
                         {"kv_bytes_per_token", kv_bytes},
                         {"kv_tokens_that_fit", KvTokensWithin(config, KvFormat::Plain(dtype), room)},
                         {"fits", KvTokensWithin(config, KvFormat::Plain(dtype), room) > 0}};
  // A context longer than the gpu tier passes through two slots of one layer each.
  report["transit_bytes_per_token"] = config.num_layers > 0 ? 2 * kv_bytes / config.num_layers : 0;
  EngineOptions options;
  options.kv_cache_dtype = "int8";
  const auto int8 = KvFormatsOf(options, dtype, config.head_dim);
  if (int8.ok()) report["int8_kv_tokens_that_fit"] = KvTokensWithin(config, int8->gpu, room);
  return report;
}

// The end of a sentence about such a model.
std::string FitText(const ordered_json& fit) {
  if (!fit["fits"].get<bool>()) return "does not fit";
  std::string text =
      fmt::format("fits, with room for {} KV tokens", fit["kv_tokens_that_fit"].get<int64_t>());
  if (fit.contains("int8_kv_tokens_that_fit"))
    text += fmt::format(", or {} in int8", fit["int8_kv_tokens_that_fit"].get<int64_t>());
  return text;
}

// What one request may be at most on a GPU whose gpu tier is all that fits beside the weights, with the cpu
// tier that there is by default. dtype: of both tiers.
ordered_json LongestContextReport(const ordered_json& model, const ModelConfig& config, const Device& device,
                                  DType dtype) {
  const ordered_json& fit = model["cuda"];
  const int64_t gpu_bytes = fit["weight_bytes"].get<int64_t>() + fit["kv_tokens_that_fit"].get<int64_t>() *
                                                                     fit["kv_bytes_per_token"].get<int64_t>();
  const int64_t cpu_tokens =
      KvTokensWithin(config, KvFormat::Plain(dtype), DefaultCpuCacheBytes(device, gpu_bytes));
  const int64_t context = model["context_length"].get<int64_t>();
  EngineOptions options;
  options.max_model_len = context;
  const int64_t transit_tokens = TransitTokens(options, {});
  const LongestContext longest =
      FindLongestContext(context, fit["kv_tokens_that_fit"].get<int64_t>(), cpu_tokens, transit_tokens);
  ordered_json report = {{"tokens", longest.tokens}, {"why", longest.why}};
  const int64_t with_flag = std::min(context, cpu_tokens);
  if (with_flag > longest.tokens) {
    report["with_kv_transit"] = with_flag;
    report["kv_transit_bytes"] = with_flag * fit["transit_bytes_per_token"].get<int64_t>();
  }
  return report;
}

// Every form of the weights on a backend. dtype: absent, the backend's default.
ordered_json FormsReport(const Checkpoint& checkpoint, const std::string& device,
                         std::optional<DType> dtype) {
  EngineOptions options;
  options.device = device;
  options.quantization = Quantization::kKeep;
  const Result<Backend> backend = CreateBackend(options);
  ordered_json forms = ordered_json::array();
  if (!backend.ok()) return forms;
  for (const ModelFit& fit : FitModel(checkpoint, *backend, dtype.value_or(backend->dtypes.front()))) {
    forms.push_back({{"device", device}, {"quantization", QuantizationName(fit.quantization)}});
    ordered_json& form = forms.back();
    form["fits"] = fit.error.empty();
    if (!fit.error.empty()) form["reason"] = fit.error;
    if (fit.weights.empty()) continue;
    form["weights"] = fit.weights;
    form["weight_bytes"] = fit.weight_bytes;
    form["gpu_kv_tokens"] = fit.gpu_kv_tokens;
    form["cpu_kv_tokens"] = fit.cpu_kv_tokens;
  }
  return forms;
}

Result<ordered_json> ModelReport(const DoctorOptions& options, const Checkpoint& checkpoint,
                                 const Result<Backend>& cuda, int64_t available_bytes, double bandwidth) {
  const ModelConfig& config = checkpoint.config();
  const CpuFeatures& features = HostCpuFeatures();
  const DType dtype = options.dtype.value_or(features.multiplies_bf16() ? DType::kBF16 : DType::kF32);
  int64_t num_parameters = 0;
  uint64_t stored_bytes = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    num_parameters += tensor.rows * tensor.cols;
    stored_bytes += tensor.stored_bytes;
  }
  ordered_json report = {{"path", options.model},
                         {"architecture", config.architecture},
                         {"parameters", num_parameters},
                         {"stored_bytes", stored_bytes},
                         {"context_length", config.max_position},
                         {"tensor_parallel_sizes", ShardCountsOf(config, kMostShards)}};
  TANDEM_ASSIGN_OR_RETURN(const Backend host, CreateBackend({.device = "host"}));
  TANDEM_ASSIGN_OR_RETURN(const ordered_json fit, FitReport(checkpoint, host, dtype, available_bytes));
  report.update(fit);
  report["decode_tokens_per_s_bound"] =
      bandwidth / static_cast<double>(std::max<int64_t>(report["weight_bytes"].get<int64_t>(), 1));
  if (cuda.ok()) {
    const auto free_bytes = static_cast<int64_t>(cuda->device->FreeBytes(MemoryKind::kDevice)) -
                            static_cast<int64_t>(cuda->workspace_bytes);
    const DType cuda_dtype = options.dtype.value_or(cuda->dtypes.front());
    TANDEM_ASSIGN_OR_RETURN(report["cuda"], FitReport(checkpoint, *cuda, cuda_dtype, free_bytes));
    report["longest_context"] = LongestContextReport(report, config, *cuda->device, cuda_dtype);
    const int num_shards = FewestShards(report["tensor_parallel_sizes"].get<std::vector<int>>(),
                                        report["cuda"]["weight_bytes"].get<int64_t>(),
                                        report["cuda"]["kv_bytes_per_token"].get<int64_t>(), free_bytes);
    if (num_shards > 0) report["cuda"]["tensor_parallel_size"] = num_shards;
  } else {
    // Both tiers lie in the same memory: there is no cpu tier unless it is asked for.
    const int64_t room_bytes =
        report["kv_tokens_that_fit"].get<int64_t>() * report["kv_bytes_per_token"].get<int64_t>();
    const int64_t gpu_tokens = DefaultBytesInSharedMemory(room_bytes) /
                               std::max<int64_t>(1, report["kv_bytes_per_token"].get<int64_t>());
    const LongestContext longest = FindLongestContext(config.max_position, gpu_tokens, 0, 0);
    report["longest_context"] = {{"tokens", longest.tokens}, {"why", longest.why}};
  }
  report["forms"] = FormsReport(checkpoint, "host", dtype);
  if (cuda.ok()) {
    for (ordered_json& form : FormsReport(checkpoint, "cuda", options.dtype))
      report["forms"].push_back(std::move(form));
  }
  return report;
}

// remedy: how the sentence ends.
void AddFitLimits(const ordered_json& model, std::string_view where, std::string_view remedy,
                  std::vector<std::string>* limits) {
  if (!model["fits"].get<bool>()) {
    limits->push_back(fmt::format(
        "The model does not fit into {}: its weights need {:.2f} GiB ({}), {:.2f} GiB are free{}.", where,
        ToGiB(model["weight_bytes"].get<int64_t>()), model["weights"].get<std::string>(),
        ToGiB(model["free_bytes"].get<int64_t>()), remedy));
  }
}

std::string ShardsRemedy(const ordered_json& model, size_t num_gpus) {
  if (!model["cuda"].contains("tensor_parallel_size")) return "";
  const int num_shards = model["cuda"]["tensor_parallel_size"].get<int>();
  return static_cast<size_t>(num_shards) <= num_gpus
             ? fmt::format("; --tensor-parallel-size {} fits", num_shards)
             : fmt::format("; it takes {} such GPUs", num_shards);
}

// What a user should know before trying.
std::vector<std::string> Limits(const ordered_json& report) {
  std::vector<std::string> limits;
  const ordered_json& cpu = report["cpu"];
  if (report["gpu"]["devices"].empty()) {
    limits.push_back("There is no GPU: everything runs on the CPU, decoding at the speed of memory.");
  } else if (!report["gpu"]["backend"]["ready"].get<bool>()) {
    limits.push_back(
        fmt::format("The GPU is not used: {}.", report["gpu"]["backend"]["reason"].get<std::string>()));
  }
  const auto has = [&cpu](const char* feature) { return cpu[feature].get<bool>(); };
  if (!has("avx2") && !has("neon")) {
    limits.emplace_back("The CPU has neither AVX2 nor NEON: only slow, portable code runs.");
  } else if (!has("avx512_bf16") && !has("neon_bf16")) {
    limits.emplace_back("The CPU does not multiply bf16: weights take twice the memory as fp32.");
  }
  if (report["memory"]["transparent_huge_pages"] == "never") {
    limits.emplace_back("Transparent huge pages are off: reading the KV cache costs more TLB misses.");
  }
  if (report.contains("model")) {
    const ordered_json& model = report["model"];
    AddFitLimits(model, "memory", "", &limits);
    if (model.contains("cuda")) {
      AddFitLimits(model["cuda"], "the GPU's memory", ShardsRemedy(model, report["gpu"]["devices"].size()),
                   &limits);
    }
    if (model["fits"].get<bool>() &&
        model["kv_tokens_that_fit"].get<int64_t>() < model["context_length"].get<int64_t>()) {
      limits.emplace_back("Not even one sequence of the full context length fits: set --max-model-len.");
    }
  }
  return limits;
}

std::string LinkText(const ordered_json& link) {
  const int from = link["gpus"][0].get<int>();
  const int to = link["gpus"][1].get<int>();
  const auto kind = link["link"].get<std::string>();
  return kind == "none" ? fmt::format(
                              "GPU {} and GPU {} do not reach each other's memory: shards exchange "
                              "through memory of the host",
                              from, to)
                        : fmt::format("GPU {} and GPU {} reach each other's memory over {}", from, to, kind);
}

// A line for each form: what --quantization it takes, what the weights take, what is left for KV.
void PrintForms(const ordered_json& forms) {
  fmt::print("           {:<7} {:<15} {:>8}  {:>14} {:>14}  weights\n", "device", "--quantization", "GiB",
             "gpu KV tokens", "cpu KV tokens");
  for (const ordered_json& form : forms) {
    fmt::print("           {:<7} {:<15} ", form["device"].get<std::string>(),
               form["quantization"].get<std::string>());
    if (!form["fits"].get<bool>()) {
      fmt::print("no: {}\n", form["reason"].get<std::string>());
      continue;
    }
    fmt::print("{:>8.2f}  {:>14} {:>14}  {}\n", ToGiB(form["weight_bytes"].get<int64_t>()),
               form["gpu_kv_tokens"].get<int64_t>(), form["cpu_kv_tokens"].get<int64_t>(),
               form["weights"].get<std::string>());
  }
}

void PrintText(const ordered_json& report) {
  const ordered_json& cpu = report["cpu"];
  const ordered_json& memory = report["memory"];
  const auto gib = [](const ordered_json& value) { return ToGiB(value.get<int64_t>()); };
  fmt::print("CPU        {}, {} cores ({} logical), {} NUMA node(s)\n", cpu["model"].get<std::string>(),
             cpu["physical_cores"].get<int>(), cpu["logical_cpus"].get<int>(), cpu["numa_nodes"].get<int>());
  fmt::print("           instruction sets: {}\n", CpuFeaturesText());
  const ordered_json& kernels = cpu["kernels"];
  for (const ordered_json& line : kernels["chosen"]) fmt::print("           {}\n", line.get<std::string>());
  if (kernels.contains("error")) {
    fmt::print("           choices of kernels are tried anew: {}\n", kernels["error"].get<std::string>());
  } else if (kernels["chosen"].empty()) {
    fmt::print("           how kernels fetch best is tried when a model starts for the first time\n");
  }
  fmt::print("memory     {:.1f} GiB, {:.1f} GiB available\n", gib(memory["total_bytes"]),
             gib(memory["available_bytes"]));
  fmt::print("           read bandwidth {:.1f} GB/s with 1 thread, {:.1f} GB/s with {}\n",
             memory["read_bytes_per_s_1_thread"].get<double>() / kGB,
             memory["read_bytes_per_s_all_threads"].get<double>() / kGB, memory["threads"].get<int>());
  fmt::print("           transparent huge pages: {}, reserved 2 MiB pages: {}\n",
             memory["transparent_huge_pages"].get<std::string>(),
             memory["reserved_2mib_pages"].get<int64_t>());
  for (const ordered_json& gpu : report["gpu"]["devices"]) {
    fmt::print("GPU        {}, {:.1f} GiB, compute capability {}, {} SMs{}\n", gpu["name"].get<std::string>(),
               gib(gpu["memory_bytes"]), gpu["compute_capability"].get<std::string>(), gpu["sms"].get<int>(),
               gpu["numa_node"].is_null() ? "" : fmt::format(", NUMA node {}", gpu["numa_node"].get<int>()));
  }
  for (const ordered_json& link : report["gpu"]["links"]) fmt::print("           {}\n", LinkText(link));
  const ordered_json& cuda = report["gpu"]["backend"];
  if (cuda["ready"].get<bool>()) {
    fmt::print("           cuda backend ready: {}, {:.1f} GiB free for weights and KV cache\n",
               cuda["description"].get<std::string>(), gib(cuda["free_bytes"]));
  }
  if (report["gpu"]["devices"].empty()) {
    fmt::print("GPU        none ({})\n", report["gpu"]["reason_for_none"].get<std::string>());
  }
  if (report.contains("model")) {
    const ordered_json& model = report["model"];
    fmt::print("model      {}, {:.1f} M parameters, context length {}\n",
               model["architecture"].get<std::string>(), model["parameters"].get<double>() / 1e6,
               model["context_length"].get<int64_t>());
    fmt::print("           weights {:.2f} GiB ({}), KV cache {} bytes a token: {}\n",
               gib(model["weight_bytes"]), model["weights"].get<std::string>(),
               model["kv_bytes_per_token"].get<int64_t>(), FitText(model));
    if (model.contains("cuda")) {
      const ordered_json& fit = model["cuda"];
      fmt::print("           on the GPU: weights {:.2f} GiB ({}), {}\n", gib(fit["weight_bytes"]),
                 fit["weights"].get<std::string>(), FitText(fit));
    }
    fmt::print("           --tensor-parallel-size {}\n",
               fmt::join(model["tensor_parallel_sizes"].get<std::vector<int>>(), ", "));
    const ordered_json& longest = model["longest_context"];
    fmt::print("           longest context {}: {}\n", longest["tokens"].get<int64_t>(),
               longest["why"].get<std::string>());
    if (longest.contains("with_kv_transit")) {
      fmt::print("           with --kv-transit {0}tok {0}, for {1:.2f} GiB of the GPU's memory\n",
                 longest["with_kv_transit"].get<int64_t>(), gib(longest["kv_transit_bytes"]));
    }
    fmt::print(
        "           one stream decodes at most {:.0f} tokens/s on the CPU (memory bandwidth over weights)\n",
        model["decode_tokens_per_s_bound"].get<double>());
    PrintForms(model["forms"]);
  }
  for (const ordered_json& limit : report["limits"]) fmt::print("limit      {}\n", limit.get<std::string>());
}

}  // namespace

Status Doctor(const DoctorOptions& options) {
  std::unique_ptr<Checkpoint> checkpoint;
  if (!options.model.empty()) {
    // Before anything is measured: what cannot be served is said at once.
    TANDEM_ASSIGN_OR_RETURN(checkpoint, Checkpoint::Open(options.model));
  }
  ordered_json report = {{"version", ProjectVersion()}, {"commit", SourceCommit()}, {"cpu", CpuReport()}};
  report["cpu"]["kernels"] = KernelsReport();
  report["memory"] = MemoryReport();
  report["gpu"] = GpuReport();
  const Result<Backend> cuda = CreateCudaBackend();
  report["gpu"]["backend"] = CudaBackendReport(cuda);
  if (checkpoint != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(
        report["model"],
        ModelReport(options, *checkpoint, cuda, report["memory"]["available_bytes"].get<int64_t>(),
                    report["memory"]["read_bytes_per_s_all_threads"].get<double>()));
  }
  report["limits"] = Limits(report);
  if (options.json) {
    fmt::print("{}\n", report.dump(2, ' ', false, ordered_json::error_handler_t::replace));
  } else {
    PrintText(report);
  }
  return {};
}

}  // namespace tandem
