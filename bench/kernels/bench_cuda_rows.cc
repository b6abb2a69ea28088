// Row-wise operations of a model on a GPU: each as a CUDA graph of many launches that follow each other; and
// sampling, as it is called. Sizes are those of Llama-3.1-8B.
//
// Up to kMaxResidentRows rows, all launches work on one set of matrices, which stays in the L2 cache: so they
// find their data in a decode iteration, where the product before has just written it. With more rows they go
// round sets that together do not fit into the L2. A rate above the memory's is that of the L2.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/token_mask.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/cuda_ops.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// What one H200 reached with plain reads.
constexpr double kGbPerS = 4650;

constexpr int64_t kHidden = 4096;
constexpr int64_t kIntermediate = 14336;
constexpr int64_t kNumHeads = 32;
constexpr int64_t kNumKvHeads = 8;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kVocab = 128256;
constexpr int64_t kMaxPosition = 8192;
constexpr int64_t kBlockSize = 32;
constexpr int kLaunches = 100;
constexpr int64_t kMaxResidentRows = 512;
constexpr int64_t kMaxSampledRows = 256;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Memory for the matrices of one measurement, handed out piece by piece.
class Arena {
 public:
  Arena(Device& device, size_t size_bytes) {
    auto buffer = device.Allocate(size_bytes, MemoryKind::kDevice, "bench matrices");
    TANDEM_CHECK(buffer.ok(), "{}", buffer.error().message);
    buffer_ = std::move(buffer).value();
  }
  void Clear() { used_ = 0; }
  void* Take(int64_t size_bytes) {
    const size_t at = used_;
    used_ += (static_cast<size_t>(size_bytes) + 255) / 256 * 256;
    TANDEM_CHECK(used_ <= buffer_.size_bytes(), "the bench's {} bytes are too few", buffer_.size_bytes());
    return buffer_.as<std::byte>() + at;
  }

 private:
  Buffer buffer_;
  size_t used_ = 0;
};

class Bench {
 public:
  explicit Bench(int sm_limit) {
    auto device = CreateCudaDevice({.sm_limit = sm_limit});
    TANDEM_CHECK(device.ok(), "{}", device.error().message);
    device_ = std::move(device).value();
    stream_ = device_->CreateStream(StreamKind::kCompute, "bench");
    ops_ = CreateCudaOps(device_.get(), {.tuning_folder = "", .tune_linear = false});
    arena_ = std::make_unique<Arena>(*device_, size_t{2} << 30);
    table_ = std::make_unique<Arena>(*device_, static_cast<size_t>(kVocab * kHidden * 2));
    for (cudaEvent_t& event : events_) TANDEM_CUDA_CHECK(cudaEventCreate(&event));
  }
  ~Bench() {
    stream_->Synchronize();
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Json Run() {
    Json result = {{"gpu", device_->Description()}, {"ops", Json::array()}, {"sampling", Json::array()}};
    table_view_ = Matrix(*table_, DType::kBF16, kVocab, kHidden);
    std::printf("%-14s %6s %9s %9s %7s\n", "op", "rows", "us", "GB/s", "share");
    for (const int64_t rows : {1, 8, 32, 128, 256, 512, 2048, 8192}) {
      Add(&result["ops"], "embedding", rows, rows * kHidden * (2 + 4), &Bench::Embedding);
      Add(&result["ops"], "add_rms_norm", rows, rows * kHidden * (4 + 4 + 2 + 2), &Bench::AddRmsNorm);
      Add(&result["ops"], "qkv_prepare", rows,
          rows * kHeadDim * 2 * (2 * (kNumHeads + kNumKvHeads) + 3 * kNumKvHeads), &Bench::QkvPrepare);
      Add(&result["ops"], "silu_mul", rows, rows * kIntermediate * 6, &Bench::SiluMul);
      Add(&result["ops"], "gather_rows", rows, rows * kHidden * 4, &Bench::GatherRows);
    }
    struct Kind {
      const char* name;
      SampleRow row;
    };
    // Half of the tokens, as a grammar's string leaves them.
    const TokenMask mask(NumMaskWords(kVocab), 0x33cc33ccU);
    const Kind kinds[] = {{"greedy", {.temperature = 0.0F}},
                          {"temperature", {.temperature = 0.8F}},
                          {"top_p", {.temperature = 0.8F, .top_p = 0.95F}},
                          {"top_k_top_p", {.temperature = 0.8F, .top_p = 0.95F, .top_k = 50}},
                          {"logprobs", {.temperature = 0.0F, .num_top_logprobs = 20}},
                          {"penalties", {.temperature = 0.8F, .repetition_penalty = 1.1F}},
                          {"mask", {.temperature = 0.8F, .allowed_tokens = mask}},
                          {"mask, greedy", {.temperature = 0.0F, .allowed_tokens = mask}},
                          {"mask, top_p", {.temperature = 0.8F, .top_p = 0.95F, .allowed_tokens = mask}}};
    std::printf("%-14s %6s %9s %9s %9s %9s\n", "sampling", "rows", "gpu us", "host us", "GB/s", "whole us");
    for (const Kind& kind : kinds) {
      for (const int64_t rows : {int64_t{1}, int64_t{32}, kMaxSampledRows}) {
        result["sampling"].push_back(Sample(kind.name, kind.row, rows));
      }
    }
    return result;
  }

 private:
  // One launch over a set of matrices.
  using MakeLaunch = std::function<void()> (Bench::*)(int64_t rows);

  MatrixView Matrix(Arena& arena, DType dtype, int64_t rows, int64_t cols) {
    const MatrixView matrix = MatrixView::Dense(
        arena.Take(rows * cols * static_cast<int64_t>(DTypeSize(dtype))), dtype, rows, cols);
    ops_->FillRandom(*stream_, matrix, {++seed_, 1.0F});
    return matrix;
  }
  const int32_t* Indices(const std::vector<int32_t>& values) {
    const auto size_bytes = static_cast<int64_t>(values.size() * sizeof(int32_t));
    auto* indices = static_cast<int32_t*>(arena_->Take(size_bytes));
    stream_->Copy(indices, values.data(), static_cast<size_t>(size_bytes));
    stream_->Synchronize();
    return indices;
  }
  std::vector<int32_t> RandomIndices(int64_t count, int64_t end) {
    std::uniform_int_distribution<int32_t> index(0, static_cast<int32_t>(end) - 1);
    std::vector<int32_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(index(random_));
    return values;
  }

  std::function<void()> Embedding(int64_t rows) {
    const EmbeddingArgs args = {table_view_, Indices(RandomIndices(rows, kVocab)),
                                Matrix(*arena_, DType::kF32, rows, kHidden)};
    return [this, args] { ops_->Embedding(*stream_, args); };
  }
  std::function<void()> AddRmsNorm(int64_t rows) {
    AddRmsNormArgs args;
    args.residual = Matrix(*arena_, DType::kF32, rows, kHidden);
    args.delta = Matrix(*arena_, DType::kBF16, rows, kHidden);
    args.weight = static_cast<const float*>(Matrix(*arena_, DType::kF32, 1, kHidden).data);
    args.out = Matrix(*arena_, DType::kBF16, rows, kHidden);
    return [this, args] { ops_->AddRmsNorm(*stream_, args); };
  }
  std::function<void()> QkvPrepare(int64_t rows) {
    QkvPrepareArgs args;
    args.qkv = Matrix(*arena_, DType::kBF16, rows, (kNumHeads + 2 * kNumKvHeads) * kHeadDim);
    args.num_heads = kNumHeads;
    args.num_kv_heads = kNumKvHeads;
    args.head_dim = kHeadDim;
    args.rope_table = static_cast<const float*>(Matrix(*arena_, DType::kF32, kMaxPosition, kHeadDim).data);
    args.positions = Indices(RandomIndices(rows, kMaxPosition));
    // Prefill appends to whole blocks; decode to one slot of many blocks.
    const int64_t num_blocks = rows > 256 ? rows / kBlockSize : rows;
    std::vector<int32_t> slots;
    slots.reserve(static_cast<size_t>(rows));
    for (int32_t r = 0; r < rows; ++r) slots.push_back(rows > 256 ? r : r * 32 + r % 32);
    args.slots = Indices(slots);
    KvRows& append = args.appends[0];
    append.num_rows = rows;
    append.kv.shape = {KvFormat::Plain(DType::kBF16), kBlockSize, kNumKvHeads, kHeadDim};
    append.kv.num_blocks = num_blocks;
    append.kv.data = arena_->Take(num_blocks * static_cast<int64_t>(append.kv.shape.BlockBytes()));
    return [this, args] { ops_->QkvPrepare(*stream_, args); };
  }
  std::function<void()> SiluMul(int64_t rows) {
    const SiluMulArgs args = {Matrix(*arena_, DType::kBF16, rows, 2 * kIntermediate),
                              Matrix(*arena_, DType::kBF16, rows, kIntermediate)};
    return [this, args] { ops_->SiluMul(*stream_, args); };
  }
  std::function<void()> GatherRows(int64_t rows) {
    std::vector<int32_t> order(static_cast<size_t>(rows));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    const GatherRowsArgs args = {Matrix(*arena_, DType::kBF16, rows, kHidden), Indices(order),
                                 Matrix(*arena_, DType::kBF16, rows, kHidden)};
    return [this, args] { ops_->GatherRows(*stream_, args); };
  }

  void Add(Json* results, const char* name, int64_t rows, int64_t bytes, MakeLaunch make) {
    arena_->Clear();
    const int64_t l2_bytes = AsCudaStream(*stream_).target().l2_bytes;
    const int64_t num_sets =
        rows <= kMaxResidentRows ? 1 : std::clamp<int64_t>(4 * l2_bytes / bytes + 1, 2, kLaunches);
    std::vector<std::function<void()>> launches;
    for (int64_t i = 0; i < num_sets; ++i) launches.push_back((this->*make)(rows));
    stream_->Synchronize();
    stream_->BeginCapture();
    for (size_t i = 0; i < kLaunches; ++i) launches[i % launches.size()]();
    const std::unique_ptr<Graph> graph = stream_->EndCapture();
    std::vector<double> times_us;
    for (int i = 0; i < 12; ++i) {
      Record(0);
      stream_->Launch(*graph);
      Record(1);
      stream_->Synchronize();
      if (i >= 2) times_us.push_back(ElapsedUs() / kLaunches);
    }
    const double us = Median(times_us);
    const double gb_per_s = static_cast<double>(bytes) / us / 1e3;
    std::printf("%-14s %6ld %9.2f %9.0f %7.3f\n", name, static_cast<long>(rows), us, gb_per_s,
                gb_per_s / kGbPerS);
    std::fflush(stdout);
    results->push_back({{"op", name},
                        {"rows", rows},
                        {"us", us},
                        {"bytes", bytes},
                        {"gb_per_s", gb_per_s},
                        {"share", gb_per_s / kGbPerS}});
  }

  Json Sample(const char* name, SampleRow kind, int64_t rows) {
    arena_->Clear();
    // Logits of a spread that leaves a few likely tokens, in two matrices by turns.
    const MatrixView logits[2] = {LogitsMatrix(), LogitsMatrix()};
    // Work before it, so that the GPU does not wait for the call.
    const SiluMulArgs before = {Matrix(*arena_, DType::kBF16, 8192, 2 * kIntermediate),
                                Matrix(*arena_, DType::kBF16, 8192, kIntermediate)};
    const std::vector<int32_t> prompt = RandomIndices(1000, kVocab);
    const std::vector<int32_t> output = RandomIndices(200, kVocab);
    std::vector<SampleRow> sample_rows;
    for (int64_t r = 0; r < rows; ++r) {
      kind.logits_row = r;
      if (kind.repetition_penalty != 1.0F) {
        kind.prompt_tokens = prompt;
        kind.output_tokens = output;
      }
      kind.seed = static_cast<uint64_t>(r);
      sample_rows.push_back(kind);
    }
    std::vector<SampledToken> results(sample_rows.size());
    std::vector<double> gpu_us;
    std::vector<double> host_us;
    std::vector<double> whole_us;
    for (int i = 0; i < 24; ++i) {
      for (SampleRow& row : sample_rows) ++row.position;
      const SampleArgs args = {logits[i % 2].Rows(0, rows), sample_rows, results};
      stream_->Synchronize();
      ops_->SiluMul(*stream_, before);
      ops_->SiluMul(*stream_, before);
      Record(0);
      const Clock::time_point begin = Clock::now();
      ops_->Sample(*stream_, args);
      const Clock::time_point end = Clock::now();
      Record(1);
      stream_->Synchronize();
      const Clock::time_point whole_begin = Clock::now();
      ops_->Sample(*stream_, args);
      stream_->Synchronize();
      const Clock::time_point whole_end = Clock::now();
      if (i < 4) continue;
      gpu_us.push_back(ElapsedUs());
      host_us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
      whole_us.push_back(std::chrono::duration<double, std::micro>(whole_end - whole_begin).count());
    }
    const double us = Median(gpu_us);
    const double gb_per_s = static_cast<double>(rows * kVocab * 4) / us / 1e3;
    std::printf("%-14s %6ld %9.2f %9.2f %9.0f %9.2f\n", name, static_cast<long>(rows), us, Median(host_us),
                gb_per_s, Median(whole_us));
    std::fflush(stdout);
    return {{"kind", name},
            {"rows", rows},
            {"gpu_us", us},
            {"host_us", Median(host_us)},
            {"call_and_synchronize_us", Median(whole_us)},
            {"gb_per_s", gb_per_s}};
  }

  MatrixView LogitsMatrix() {
    const MatrixView matrix =
        MatrixView::Dense(arena_->Take(kMaxSampledRows * kVocab * 4), DType::kF32, kMaxSampledRows, kVocab);
    std::vector<float> row(static_cast<size_t>(kVocab));
    std::normal_distribution<float> normal(0.0F, 3.0F);
    for (float& value : row) value = normal(random_);
    for (int64_t r = 0; r < kMaxSampledRows; ++r) {
      stream_->Copy(matrix.RowData(r), row.data(), row.size() * sizeof(float));
    }
    stream_->Synchronize();
    return matrix;
  }

  void Record(size_t event) {
    TANDEM_CUDA_CHECK(cudaEventRecord(events_[event], AsCudaStream(*stream_).handle()));
  }
  double ElapsedUs() {
    float ms = 0;
    TANDEM_CUDA_CHECK(cudaEventElapsedTime(&ms, events_[0], events_[1]));
    return ms * 1e3;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> table_;
  MatrixView table_view_;
  cudaEvent_t events_[2] = {};
  std::mt19937 random_{1};
  uint64_t seed_ = 0;
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  CLI::App app{"Row-wise operations and sampling on a GPU"};
  std::string json_path;
  int sm_limit = 0;
  app.add_option("--json", json_path, "File for the figures");
  app.add_option("--sm-limit", sm_limit, "SMs to run on; 0: all");
  CLI11_PARSE(app, argc, argv);
  const nlohmann::json result = tandem::Bench(sm_limit).Run();
  if (!json_path.empty()) std::ofstream(json_path) << result.dump(1) << "\n";
  return 0;
}
