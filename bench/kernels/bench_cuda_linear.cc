// Products of a model on a GPU: all layers as one CUDA graph, against the time in which their weights can be
// read or their operations done.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/quantization.h"
#include "base/weight_format.h"
#include "device/cuda/cuda_device.h"
#include "gate_up_bench.h"
#include "graph_timer.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/cuda_linear_weight.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/skinny_linear.h"
#include "ops/cuda/linear/streamed/streamed_linear.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// What one H200 reached: plain reads, and large bf16 products of random data.
constexpr double kBytesPerUs = 4.65e6;
constexpr double kFlopsPerUs = 808e6;
constexpr double kFp8FlopsPerUs = 2 * kFlopsPerUs;  // not measured: the tensor cores' ratio

struct ProductShape {
  std::string name;
  int64_t out_features = 0;
  int64_t in_features = 0;
};

struct ModelShape {
  int64_t num_layers = 0;
  std::vector<ProductShape> layer;
  ProductShape lm_head;
};

const std::map<std::string, ModelShape>& Models() {
  static const std::map<std::string, ModelShape> models = {
      {"llama-3.1-8b",
       {32,
        {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}},
        {"lm_head", 128256, 4096}}},
      {"llama-2-7b",
       {32,
        {{"qkv", 12288, 4096}, {"o", 4096, 4096}, {"gate_up", 22016, 4096}, {"down", 4096, 11008}},
        {"lm_head", 32000, 4096}}},
      {"smollm2-135m",
       {30,
        {{"qkv", 960, 576}, {"o", 576, 576}, {"gate_up", 3072, 576}, {"down", 576, 1536}},
        {"lm_head", 49152, 576}}}};
  return models;
}

struct Options {
  std::string model = "llama-3.1-8b";
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 512, 2048};
  bool only_gate_up = false;
  bool only_own = false;
  std::vector<int> group_columns = {4, kFusedGroupColumns, 16};
  Quantization quantization = Quantization::kNone;
  DType dtype = DType::kBF16;
  int sm_limit = 0;
  std::string tuning_folder;
  std::string json;
};

// The weights of one kind of product, of all layers.
struct Stack {
  ProductShape shape;
  DType y_dtype = DType::kBF16;
  std::vector<std::unique_ptr<LinearWeight>> weights;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        model_(Models().at(options.model)),
        device_(OpenDevice(options.sm_limit)),
        stream_(device_->CreateStream(StreamKind::kCompute, "bench")),
        timer_(stream_.get()),
        runner_(device_.get()) {
    runner_.PrepareWorkspace(AsCudaStream(*stream_));
    first_choice_ = CreateCudaOps(device_.get(), {.tuning_folder = "", .tune_linear = false});
    const std::string& folder = options.tuning_folder;
    tuned_ = CreateCudaOps(device_.get(), {.tuning_folder = folder, .tune_linear = true});
    tuned_cublaslt_ = CreateCudaOps(
        device_.get(), {.tuning_folder = folder.empty() ? "" : folder + "/without-streamed-products",
                        .tune_linear = true,
                        .streamed_products = false});
    if (quantized()) {
      codes_ = CreateCudaOps(device_.get(), {.tune_linear = false,
                                             .code_rows = {.max = 1 << 20},
                                             .streamed_products = false,
                                             .fp8_products = false});
      streamed_codes_ = CreateCudaOps(
          device_.get(),
          {.tune_linear = false, .code_rows = {.max = 0, .min_streamed = 1}, .fp8_products = false});
      values_ = CreateCudaOps(device_.get(), {.tuning_folder = options.tuning_folder,
                                              .tune_linear = true,
                                              .code_rows = {.max = 0, .min_streamed = 1 << 20},
                                              .fp8_products = false});
    }
  }

  Json Run() {
    if (options_.only_gate_up) return RunGateUp();
    for (const ProductShape& shape : model_.layer) {
      stacks_.push_back(MakeStack(shape, model_.num_layers, options_.dtype, /*is_vocabulary=*/false));
    }
    lm_head_ = MakeStack(model_.lm_head, 1, DType::kF32, /*is_vocabulary=*/true);
    AllocateMatrices();
    const auto tune_begin = std::chrono::steady_clock::now();
    if (!options_.only_own) {
      for (Stack& stack : stacks_) Tune(stack);
      Tune(lm_head_);
    }
    const std::chrono::duration<double> tune_time = std::chrono::steady_clock::now() - tune_begin;

    Json result = {{"gpu", device_->Description()},
                   {"products", tuned_->Description()},
                   {"model", options_.model},
                   {"tuning_s", tune_time.count()},
                   {"weights", quantized() ? DescribeWeightFormat(stacks_[0].weights[0]->format())
                                           : DTypeName(options_.dtype)},
                   {"layers", Json::array()},
                   {"lm_head", Json::array()}};
    std::vector<const Stack*> layer;
    for (const Stack& stack : stacks_) layer.push_back(&stack);
    for (const int64_t rows : options_.rows) {
      Json entry = Measure(layer, rows, model_.num_layers);
      for (const Stack* stack : layer) {
        entry["alone"][stack->shape.name] = Measure({stack}, rows, model_.num_layers);
      }
      Print("layer", entry);
      result["layers"].push_back(std::move(entry));
    }
    for (const int64_t rows : options_.rows) {
      constexpr int64_t kMaxRowsOfLogits = 512;
      if (rows > kMaxRowsOfLogits) continue;
      Json entry = Measure({&lm_head_}, rows, 1);
      Print("lm_head", entry);
      result["lm_head"].push_back(std::move(entry));
    }
    return result;
  }

 private:
  using Multiply = std::function<void(const LinearArgs&)>;

  static std::unique_ptr<Device> OpenDevice(int sm_limit) {
    auto device = CreateCudaDevice({.sm_limit = sm_limit});
    TANDEM_CHECK(device.ok(), "{}", device.error().message);
    return std::move(device).value();
  }

  Json RunGateUp() {
    const auto gate_up = std::find_if(model_.layer.begin(), model_.layer.end(),
                                      [](const ProductShape& shape) { return shape.name == "gate_up"; });
    GateUpBench bench(device_.get(), stream_.get(), tuned_.get(),
                      {.mlp = gate_up->out_features / 2,
                       .in_features = gate_up->in_features,
                       .rows = options_.rows,
                       .group_columns = options_.group_columns});
    return {{"gpu", device_->Description()},
            {"products", tuned_->Description()},
            {"model", options_.model},
            {"gate_up", bench.Run()}};
  }

  bool quantized() const { return options_.quantization != Quantization::kNone; }

  Stack MakeStack(const ProductShape& shape, int64_t count, DType y_dtype, bool is_vocabulary) {
    Stack stack;
    stack.shape = shape;
    stack.y_dtype = y_dtype;
    for (int64_t i = 0; i < count; ++i) {
      stack.weights.push_back(MakeWeight(shape, is_vocabulary));
      stack.weights.back()->FillRandom({static_cast<uint64_t>(i + 1), 0.03F});
    }
    return stack;
  }

  std::unique_ptr<LinearWeight> MakeWeight(const ProductShape& shape, bool is_vocabulary) {
    if (!quantized()) {
      auto weight = tuned_->CreateLinearWeight(shape.out_features, shape.in_features, options_.dtype);
      TANDEM_CHECK(weight.ok(), "{}", weight.error().message);
      return std::move(weight).value();
    }
    constexpr int64_t kLargestGroup = 128;  // as most published checkpoints of 4 bits have
    const WeightFormat format =
        QuantizedFormat(options_.quantization, shape.in_features, is_vocabulary, kLargestGroup);
    auto weight =
        tuned_->CreateQuantizedWeight({shape.out_features, shape.in_features, options_.dtype}, format);
    TANDEM_CHECK(weight.ok(), "{}", weight.error().message);
    return std::move(weight).value();
  }

  void AllocateMatrices() {
    int64_t max_in = 0;
    size_t max_y_bytes = 0;
    const int64_t max_rows = *std::max_element(options_.rows.begin(), options_.rows.end());
    const auto account = [&](const Stack& stack, int64_t rows) {
      max_in = std::max(max_in, stack.shape.in_features);
      max_y_bytes = std::max(max_y_bytes,
                             static_cast<size_t>(rows * stack.shape.out_features) * DTypeSize(stack.y_dtype));
    };
    for (const Stack& stack : stacks_) account(stack, max_rows);
    account(lm_head_, std::min<int64_t>(max_rows, 512));
    x_ = device_->Allocate(static_cast<size_t>(max_rows * max_in) * 2, MemoryKind::kDevice, "x").value();
    y_ = device_->Allocate(max_y_bytes, MemoryKind::kDevice, "y").value();
    tuned_->FillRandom(*stream_, MatrixView::Dense(x_.data(), options_.dtype, max_rows, max_in), {1, 1.0F});
    stream_->Synchronize();
  }

  void Tune(const Stack& stack) {
    std::vector<const LinearWeight*> weights;
    for (const auto& weight : stack.weights) weights.push_back(weight.get());
    std::vector<int64_t> rows = options_.rows;
    if (&stack == &lm_head_) std::erase_if(rows, [](int64_t count) { return count > 512; });
    tuned_->TuneLinear(*stream_, {weights, stack.y_dtype, rows});
    tuned_cublaslt_->TuneLinear(*stream_, {weights, stack.y_dtype, rows});
    if (values_ != nullptr) values_->TuneLinear(*stream_, {weights, stack.y_dtype, rows});
  }

  LinearArgs Args(const Stack& stack, size_t layer, int64_t rows) const {
    return {MatrixView::Dense(x_.data(), options_.dtype, rows, stack.shape.in_features),
            stack.weights[layer].get(),
            MatrixView::Dense(y_.data(), stack.y_dtype, rows, stack.shape.out_features)};
  }

  // Microseconds a layer; the products of all layers are one graph.
  double TimeUs(const std::vector<const Stack*>& stacks, int64_t rows, int64_t num_layers,
                const Multiply& multiply) {
    const auto enqueue_layers = [&](int64_t count) {
      for (int64_t layer = 0; layer < count; ++layer) {
        for (const Stack* stack : stacks) multiply(Args(*stack, static_cast<size_t>(layer), rows));
      }
    };
    // A single product is repeated, so that the start of the graph does not count much.
    const int64_t passes = num_layers == 1 ? 4 : 1;
    const double us = timer_.TimeUs([&] { enqueue_layers(1); },
                                    [&] {
                                      for (int64_t pass = 0; pass < passes; ++pass)
                                        enqueue_layers(num_layers);
                                    });
    return us / static_cast<double>(num_layers * passes);
  }

  Json Measure(const std::vector<const Stack*>& stacks, int64_t rows, int64_t num_layers) {
    double bytes = 0.0;
    double flops = 0.0;
    for (const Stack* stack : stacks) {
      const auto elements = static_cast<double>(stack->shape.out_features * stack->shape.in_features);
      bytes += quantized()
                   ? static_cast<double>(QuantizedBytes(stack->weights[0]->format(),
                                                        stack->shape.out_features, stack->shape.in_features))
                   : 2.0 * elements;
      flops += 2.0 * elements * static_cast<double>(rows);
    }
    const double rate = options_.quantization == Quantization::kFp8 ? kFp8FlopsPerUs : kFlopsPerUs;
    const double floor_us = std::max(bytes / kBytesPerUs, flops / rate);
    Json entry = {{"rows", rows}, {"floor_us", floor_us}};
    const auto add = [&](const std::string& name, const Multiply& multiply) {
      const double us = TimeUs(stacks, rows, num_layers, multiply);
      entry[name] = {{"us", us}, {"share_of_floor", floor_us / us}};
    };
    if (quantized()) {
      // The ways that "chosen" has, and what it is without measurement: many rows of FP8 are multiplied as
      // such.
      add("codes", [&](const LinearArgs& args) { codes_->Linear(*stream_, args); });
      if (options_.only_own) return entry;
      add("streamed_codes", [&](const LinearArgs& args) { streamed_codes_->Linear(*stream_, args); });
      add("values", [&](const LinearArgs& args) { values_->Linear(*stream_, args); });
      add("first_choice", [&](const LinearArgs& args) { first_choice_->Linear(*stream_, args); });
      add("chosen", [&](const LinearArgs& args) { tuned_->Linear(*stream_, args); });
      return entry;
    }
    if (!options_.only_own) {
      add("first_choice", [&](const LinearArgs& args) { first_choice_->Linear(*stream_, args); });
    }
    CudaStream& stream = AsCudaStream(*stream_);
    const MatrixView x = Args(*stacks[0], 0, rows).x;
    const MatrixView weight = AsCudaLinearWeight(stacks[0]->weights[0].get()).view();
    if (SkinnyLinearSupports(stream.target(), x, weight)) {
      add("skinny", [&](const LinearArgs& args) {
        LaunchSkinnyLinear(stream, args.x, AsCudaLinearWeight(args.weight).view(), nullptr, args.y);
      });
    }
    LinearAlgorithm streamed;
    streamed.method = LinearMethod::kStreamed;
    for (const StreamedLinear kernel : kStreamedLinears) {
      streamed.streamed = kernel;
      if (!runner_.CanRun(Args(*stacks[0], 0, rows), streamed)) continue;
      add(fmt::format("streamed {}", StreamedLinearName(kernel)),
          [&](const LinearArgs& args) { TANDEM_CHECK(runner_.Run(stream, args, streamed)); });
    }
    if (options_.only_own) return entry;
    add("tuned cuBLASLt", [&](const LinearArgs& args) { tuned_cublaslt_->Linear(*stream_, args); });
    add("tuned", [&](const LinearArgs& args) { tuned_->Linear(*stream_, args); });
    return entry;
  }

  static void Print(const std::string& what, const Json& entry) {
    std::string line = fmt::format("{:8} {:5} rows: floor {:8.1f} us", what, entry["rows"].get<int64_t>(),
                                   entry["floor_us"].get<double>());
    const auto append = [&line](const Json& from, const std::string& prefix) {
      for (const auto& [name, value] : from.items()) {
        if (value.is_object() && value.contains("us")) {
          line += fmt::format(", {}{} {:.1f} ({:.0f}%)", prefix, name, value["us"].get<double>(),
                              value["share_of_floor"].get<double>() * 100);
        }
      }
    };
    append(entry, "");
    if (entry.contains("alone")) {
      for (const auto& [name, value] : entry["alone"].items()) {
        line += fmt::format("\n    {:8}", name);
        append(value, "");
      }
    }
    std::cerr << line << '\n';
  }

  Options options_;
  ModelShape model_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  GraphTimer timer_;
  LinearRunner runner_;
  std::unique_ptr<Ops> first_choice_;
  std::unique_ptr<Ops> tuned_;
  std::unique_ptr<Ops> tuned_cublaslt_;
  // With --quantization: quantized weights as codes by the kernels of 8.0, as codes by streamed products
  // where these can, and always dequantized.
  std::unique_ptr<Ops> codes_;
  std::unique_ptr<Ops> streamed_codes_;
  std::unique_ptr<Ops> values_;
  std::vector<Stack> stacks_;
  Stack lm_head_;
  Buffer x_;
  Buffer y_;
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Options options;
  CLI::App app("Products of a model's layers on a GPU, against the limits of the machine");
  app.add_option("--model", options.model)->check(CLI::IsMember(tandem::Models()))->capture_default_str();
  app.add_option("--rows", options.rows, "Row counts")->delimiter(',')->check(CLI::Range(1, 8192));
  app.add_flag("--gate-up", options.only_gate_up,
               "Only the first product of the MLP with SiLU, fused and not, of many rows");
  app.add_option("--group-columns", options.group_columns, "With --gate-up: columns that are walked together")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  std::string quantization;
  app.add_option("--quantization", quantization, "Weights of 4 or 8 bits; lm_head has 8 either way")
      ->check(CLI::IsMember({"int4", "int8", "fp8"}));
  std::string dtype = "bf16";
  app.add_option("--dtype", dtype, "Type of x, of weights that are not quantized and of what is computed")
      ->check(CLI::IsMember({"bf16", "fp16"}))
      ->capture_default_str();
  app.add_flag("--only-own", options.only_own, "Without cuBLASLt and what is chosen by measurement");
  app.add_option("--sm-limit", options.sm_limit, "SMs of the GPU that may be used; 0: all");
  app.add_option("--tuning-folder", options.tuning_folder, "Where measured choices are kept");
  app.add_option("--json", options.json, "Result file; standard output if not given");
  CLI11_PARSE(app, argc, argv);
  if (!quantization.empty()) options.quantization = tandem::ParseQuantization(quantization).value();
  options.dtype = dtype == "fp16" ? tandem::DType::kF16 : tandem::DType::kBF16;
  if (options.only_gate_up && app.count("--rows") == 0) options.rows = {512, 1024, 1707, 2048, 4096, 8192};
  const nlohmann::json result = tandem::Bench(options).Run();
  if (options.json.empty()) {
    std::cout << result.dump(1) << '\n';
  } else {
    std::ofstream(options.json) << result.dump(1) << '\n';
  }
  return 0;
}
