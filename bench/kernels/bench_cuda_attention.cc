// Decode attention on the GPU: how much of the memory's read bandwidth the decode kernel and FlashInfer's FA2
// prefill kernel (at one row a sequence) reach. Many launches, each over another layer so that the L2 cache
// does not hold what is read, in one CUDA graph as in serving. Blocks lie in random order.
#include <cuda_runtime_api.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/attention/prefill_attention.h"
#include "ops/cuda/cuda_ops.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  int64_t num_heads = 32;
  int64_t num_kv_heads = 8;
  int64_t head_dim = 128;
  int64_t context = 1024;
  int64_t batch = 1;
  bool mixed = false;          // lengths from near 0 to near twice the context, which is their mean
  DType dtype = DType::kBF16;  // of q and out
  DType kv_dtype = DType::kBF16;

  KvShape kv() const { return {KvFormat::Of(kv_dtype), 32, num_kv_heads, head_dim}; }
  int64_t length(int64_t i) const { return mixed ? context * (2 * i + 1) / batch : context; }
  int64_t num_blocks_of(int64_t i) const { return (length(i) + 31) / 32; }
  int64_t num_blocks() const {
    int64_t blocks = 0;
    for (int64_t i = 0; i < batch; ++i) blocks += num_blocks_of(i);
    return blocks;
  }
  int64_t layer_bytes() const { return num_blocks() * static_cast<int64_t>(kv().BlockBytes()); }
  // K and V of the context as the cache has them, q and out.
  double bytes() const {
    const auto kv_bytes = static_cast<double>(batch * context) * static_cast<double>(kv().TokenBytes());
    return kv_bytes + static_cast<double>(batch * num_heads * head_dim * 2 * 2);
  }
};

struct Figures {
  double us = 0;
  double plan_us = 0;  // host time of planning
};

template <typename T>
T Value(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "error: %s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  // dtype: what the memory is filled as.
  Bench(std::unique_ptr<Device> device, int64_t cache_bytes, DType dtype)
      : device_(std::move(device)),
        ops_(CreateCudaOps(device_.get(), {.tuning_folder = "", .tune_linear = false})),
        stream_(device_->CreateStream(StreamKind::kCompute, "bench")),
        cache_(Value(device_->Allocate(static_cast<size_t>(cache_bytes), MemoryKind::kDevice, "cache"))),
        q_(Value(device_->Allocate(size_t{512} * 32 * 128 * 2, MemoryKind::kDevice, "q"))),
        out_(Value(device_->Allocate(size_t{512} * 32 * 128 * 2, MemoryKind::kDevice, "out"))) {
    for (const Buffer* buffer : {&cache_, &q_}) {
      constexpr int64_t kCols = 4096;
      const auto rows = static_cast<int64_t>(buffer->size_bytes()) / (2 * kCols);
      ops_->FillRandom(*stream_, MatrixView::Dense(buffer->data(), dtype, rows, kCols), {1, 1.0F});
    }
    stream_->Synchronize();
    TANDEM_CUDA_CHECK(cudaEventCreate(&start_));
    TANDEM_CUDA_CHECK(cudaEventCreate(&stop_));
  }
  ~Bench() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const CudaTarget& target() const { return AsCudaStream(*stream_).target(); }

  Figures RunDecodeKernel(const Case& c) {
    const AttentionBatch batch = MakeBatch(c);
    const auto plan = Value(ops_->CreateAttentionPlan(CapacityOf(c)));
    Figures figures;
    figures.plan_us = TimePlan([&] { ops_->PlanAttention(*stream_, batch, plan.get()); });
    figures.us = TimeLaunches(c, [&](const AttentionArgs& args) {
      AttentionArgs with_plan = args;
      with_plan.plan = plan.get();
      ops_->PagedAttention(*stream_, with_plan);
    });
    return figures;
  }

  Figures RunFlashInfer(const Case& c) {
    const AttentionBatch batch = MakeBatch(c);
    const auto attention = Value(PrefillAttention::Create(device_.get(), CapacityOf(c), c.dtype, target()));
    CudaStream& stream = AsCudaStream(*stream_);
    Figures figures;
    figures.plan_us = TimePlan([&] { attention->Plan(stream, batch.sequences, c.kv(), c.num_heads, 0); });
    figures.us = TimeLaunches(c, [&](const AttentionArgs& args) { attention->Run(stream, args); });
    return figures;
  }

 private:
  AttentionBatch MakeBatch(const Case& c) {
    std::mt19937 random(7);
    std::vector<int32_t> blocks(static_cast<size_t>(c.num_blocks()));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    AttentionBatch batch;
    batch.num_rows = c.batch;
    auto next = blocks.begin();
    for (int64_t i = 0; i < c.batch; ++i) {
      AttentionSequence sequence;
      sequence.row_begin = i;
      sequence.context_len = c.length(i);
      sequence.block_table.assign(next, next + c.num_blocks_of(i));
      next += c.num_blocks_of(i);
      batch.sequences.push_back(std::move(sequence));
    }
    return batch;
  }

  AttentionCapacity CapacityOf(const Case& c) const {
    AttentionCapacity capacity;
    capacity.max_rows = c.batch;
    capacity.max_sequences = c.batch;
    capacity.max_blocks = c.num_blocks();
    capacity.kv = c.kv();
    capacity.coded_rows = c.dtype;
    capacity.num_heads = c.num_heads;
    return capacity;
  }

  double TimePlan(const std::function<void()>& plan) {
    std::vector<double> times;
    for (int i = 0; i < 20; ++i) {
      const auto begin = Clock::now();
      plan();
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      stream_->Synchronize();
    }
    return Median(times);
  }

  // Microseconds a launch.
  double TimeLaunches(const Case& c, const std::function<void(const AttentionArgs&)>& launch) {
    const int64_t num_layers =
        std::clamp<int64_t>(static_cast<int64_t>(cache_.size_bytes()) / c.layer_bytes(), 1, 64);
    const double expected_us = 8 + c.bytes() / 4e6 * 132 / target().num_sms;
    const auto wanted = static_cast<int64_t>(3000 / expected_us);
    const int64_t num_launches =
        (std::clamp<int64_t>(wanted, 2, 256) + num_layers - 1) / num_layers * num_layers;
    const int64_t width = c.num_heads * c.head_dim;
    stream_->BeginCapture();
    for (int64_t i = 0; i < num_launches; ++i) {
      AttentionArgs args;
      args.q = MatrixView::Dense(q_.data(), c.dtype, c.batch, width);
      args.out = MatrixView::Dense(out_.data(), c.dtype, c.batch, width);
      args.kv.data = cache_.as<std::byte>() + i % num_layers * c.layer_bytes();
      args.kv.shape = c.kv();
      args.kv.num_blocks = c.num_blocks();
      args.num_heads = c.num_heads;
      args.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
      launch(args);
    }
    const std::unique_ptr<Graph> graph = stream_->EndCapture();
    const cudaStream_t handle = AsCudaStream(*stream_).handle();
    std::vector<double> times;
    for (int run = 0; run < 7; ++run) {
      TANDEM_CUDA_CHECK(cudaEventRecord(start_, handle));
      stream_->Launch(*graph);
      TANDEM_CUDA_CHECK(cudaEventRecord(stop_, handle));
      stream_->Synchronize();
      float ms = 0;
      TANDEM_CUDA_CHECK(cudaEventElapsedTime(&ms, start_, stop_));
      if (run >= 2) times.push_back(static_cast<double>(ms) * 1e3 / static_cast<double>(num_launches));
    }
    return Median(times);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Stream> stream_;
  Buffer cache_;
  Buffer q_;
  Buffer out_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

int Main(int argc, char** argv) {
  std::vector<int64_t> batches = {1, 8, 32, 128, 256};
  std::vector<int64_t> contexts = {1024, 4096};
  std::vector<int64_t> kv_heads = {8, 32};
  int sm_limit = 0;
  double read_tbps = 4.65;
  bool only_own = false;
  bool mixed = false;
  int64_t head_dim = 128;
  std::string dtype_name = "bf16";
  std::string kv_dtype = "auto";
  std::string json_path;
  CLI::App app("Bandwidth of decode attention on the GPU (32 query heads)");
  app.add_option("--batch", batches, "sequences")->delimiter(',');
  app.add_option("--context", contexts, "tokens of each")->delimiter(',');
  app.add_option("--kv-heads", kv_heads, "kv heads")->delimiter(',');
  app.add_option("--sm-limit", sm_limit, "SMs to use (a green context); 0: all");
  app.add_option("--read-bandwidth", read_tbps, "TB/s that plain reading reaches, for the share");
  app.add_option("--head-dim", head_dim, "elements of a head")
      ->check(CLI::IsMember({64, 128}))
      ->capture_default_str();
  app.add_option("--dtype", dtype_name, "type of q and out: bf16 or fp16")
      ->check(CLI::IsMember({"bf16", "fp16"}))
      ->capture_default_str();
  app.add_option(
         "--kv-dtype", kv_dtype,
         "type of the cache: auto (as --dtype), int8 or fp8 (FlashInfer then reads numbers made of it)")
      ->check(CLI::IsMember({"auto", "int8", "fp8"}))
      ->capture_default_str();
  app.add_flag("--only-own", only_own, "without FlashInfer");
  app.add_flag("--mixed", mixed, "contexts from near 0 to near twice the given mean");
  app.add_option("--json", json_path, "where to write the figures");
  CLI11_PARSE(app, argc, argv);
  const DType dtype = dtype_name == "fp16" ? DType::kF16 : DType::kBF16;
  if (kv_dtype == "auto") kv_dtype = dtype_name;

  int64_t cache_bytes = int64_t{4} << 30;
  std::vector<Case> cases;
  for (const int64_t heads : kv_heads) {
    for (const int64_t context : contexts) {
      for (const int64_t batch : batches) {
        const Case c{.num_kv_heads = heads,
                     .head_dim = head_dim,
                     .context = context,
                     .batch = batch,
                     .mixed = mixed,
                     .dtype = dtype,
                     .kv_dtype = kv_dtype == "int8"  ? DType::kI8
                                 : kv_dtype == "fp8" ? DType::kF8E4M3
                                                     : dtype};
        if (batch > 512 || 32 % heads != 0) continue;
        cases.push_back(c);
        cache_bytes = std::max(cache_bytes, c.layer_bytes());
      }
    }
  }
  CudaDeviceOptions options;
  options.sm_limit = sm_limit;
  auto device = Value(CreateCudaDevice(options));
  const std::string description = device->Description();
  Bench bench(std::move(device), cache_bytes, dtype);

  nlohmann::json results = nlohmann::json::array();
  std::printf("%s\n%6s %8s %9s %-12s %9s %9s %7s %9s\n", description.c_str(), "batch", "context", "kv heads",
              "kernel", "us", "GB/s", "share", "plan us");
  for (const Case& c : cases) {
    for (const bool own : {true, false}) {
      if (!own && only_own) continue;
      const Figures figures = own ? bench.RunDecodeKernel(c) : bench.RunFlashInfer(c);
      const double gbps = c.bytes() / figures.us / 1e3;
      const char* kernel = own ? "decode" : "fa2";
      std::printf("%6ld %8ld %9ld %-12s %9.2f %9.0f %7.3f %9.1f\n", static_cast<long>(c.batch),
                  static_cast<long>(c.context), static_cast<long>(c.num_kv_heads), kernel, figures.us, gbps,
                  gbps / (read_tbps * 1e3), figures.plan_us);
      std::fflush(stdout);
      results.push_back({{"batch", c.batch},
                         {"context", c.context},
                         {"mixed", c.mixed},
                         {"num_heads", c.num_heads},
                         {"num_kv_heads", c.num_kv_heads},
                         {"head_dim", c.head_dim},
                         {"dtype", dtype_name},
                         {"kv_dtype", kv_dtype},
                         {"kernel", kernel},
                         {"us", figures.us},
                         {"gb_per_s", gbps},
                         {"share", gbps / (read_tbps * 1e3)},
                         {"plan_us", figures.plan_us}});
    }
  }
  if (!json_path.empty()) {
    const nlohmann::json document = {{"device", description},
                                     {"num_sms", bench.target().num_sms},
                                     {"read_tb_per_s", read_tbps},
                                     {"results", results}};
    std::ofstream(json_path) << document.dump(1) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::Main(argc, argv);
}
