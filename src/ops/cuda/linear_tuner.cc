#include "ops/cuda/linear_tuner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/log.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/fill_random.h"
#include "ops/cuda/linear_kernels.h"
#include "ops/cuda/skinny_linear.h"

namespace tandem {
namespace {

// Whole search of one shape.
constexpr std::chrono::duration<double> kBudget{5.0};
constexpr double kWideShare = 8.0;  // of the budget, against 1 for a row count that only tries hints
constexpr size_t kNumHints = 6;
constexpr size_t kNumFinalists = 4;
constexpr int kFinalRounds = 4;
constexpr double kHopeless = 1.25;  // times the best: not measured again
constexpr double kMaxError = 1e-2;
// Larger results are not worth their memory.
constexpr size_t kMaxResultBytes = size_t{2} << 30;

bool IsPowerOfTwo(int64_t value) {
  return (value & (value - 1)) == 0;
}

bool SameAlgorithm(const LinearAlgorithm& a, const LinearAlgorithm& b) {
  if (a.method != b.method) return false;
  if (a.method == LinearMethod::kSkinny) return a.skinny_variant == b.skinny_variant;
  return a.separate_bias == b.separate_bias && std::memcmp(&a.lt, &b.lt, sizeof(a.lt)) == 0;
}

template <typename T>
bool SetConfig(LinearAlgorithm* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, T value) {
  return cublasLtMatmulAlgoConfigSetAttribute(&algorithm->lt, attribute, &value, sizeof(value)) ==
         CUBLAS_STATUS_SUCCESS;
}

// The ids of a capability that is a list.
std::vector<uint32_t> CapabilityIds(const cublasLtMatmulAlgo_t& algorithm,
                                    cublasLtMatmulAlgoCapAttributes_t attribute) {
  size_t size_bytes = 0;
  if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, attribute, nullptr, 0, &size_bytes) !=
      CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  std::vector<uint32_t> ids(size_bytes / sizeof(uint32_t));
  if (ids.empty() || cublasLtMatmulAlgoCapGetAttribute(&algorithm, attribute, ids.data(), size_bytes,
                                                       &size_bytes) != CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  return ids;
}

float ToFloat(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

double RelativeErrorOf(const std::vector<float>& result, const std::vector<float>& reference) {
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double delta = double{result[i]} - double{reference[i]};
    difference += delta * delta;
    norm += double{reference[i]} * double{reference[i]};
  }
  return norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

std::string_view NameOf(const LinearAlgorithm& algorithm) {
  return algorithm.method == LinearMethod::kSkinny ? "own kernel" : "cuBLASLt";
}

}  // namespace

LinearTuner::LinearTuner(Device* device, LinearRunner* runner, CudaStream* stream, const LinearTuning& tuning)
    : device_(device),
      runner_(runner),
      stream_(stream),
      tuning_(tuning),
      shape_(ShapeOf(AsCudaLinearWeight(tuning.weights[0]), tuning.y_dtype)),
      use_row_major_(!shape_.has_bias) {
  for (cudaEvent_t& event : events_) TANDEM_CUDA_CHECK(cudaEventCreate(&event));
}

LinearTuner::~LinearTuner() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

std::map<int64_t, LinearAlgorithm> LinearTuner::Measure(const std::vector<int64_t>& row_counts) {
  const Clock::time_point begin = Clock::now();
  const size_t bytes_a_row = static_cast<size_t>(shape_.out_features) * DTypeSize(shape_.y_dtype);
  std::vector<int64_t> counts;
  for (const int64_t rows : row_counts) {
    if (static_cast<size_t>(rows) * bytes_a_row <= kMaxResultBytes) counts.push_back(rows);
  }
  if (counts.empty() || !AllocateMatrices(counts.back())) return {};

  // The widely searched first: they give the others their hints.
  const auto is_wide = [&](int64_t rows) { return IsPowerOfTwo(rows) || rows == counts.front(); };
  std::stable_partition(counts.begin(), counts.end(), is_wide);
  double shares = 0.0;
  for (const int64_t rows : counts) shares += is_wide(rows) ? kWideShare : 1.0;
  std::map<int64_t, LinearAlgorithm> best;
  std::map<int64_t, std::vector<LinearAlgorithm>> best_of_wide;
  for (const int64_t rows : counts) {
    const double share = is_wide(rows) ? kWideShare : 1.0;
    const auto remaining = kBudget - (Clock::now() - begin);
    const Clock::time_point deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(remaining * (share / shares));
    shares -= share;
    std::vector<LinearAlgorithm> hints;
    const auto next = best_of_wide.lower_bound(rows);
    if (next != best_of_wide.end()) hints = next->second;
    if (next != best_of_wide.begin()) {
      const std::vector<LinearAlgorithm>& smaller = std::prev(next)->second;
      hints.insert(hints.end(), smaller.begin(), smaller.end());
    }
    std::vector<Candidate> candidates = Search(rows, hints, is_wide(rows), deadline);
    if (!Decide(rows, &candidates)) continue;
    best[rows] = candidates.front().algorithm;
    best[rows].measured_us = static_cast<float>(candidates.front().us);
    if (!is_wide(rows)) continue;
    for (size_t i = 0; i < std::min(candidates.size(), kNumHints); ++i) {
      best_of_wide[rows].push_back(candidates[i].algorithm);
    }
  }
  if (!best.empty()) {
    const auto& [fewest, first] = *best.begin();
    const auto& [most, last] = *best.rbegin();
    LogInfo(
        "products with weights [{}, {}] {}: measured {} row counts in {:.1f} s; {} rows {:.1f} us ({}), {} "
        "rows "
        "{:.1f} us ({})",
        shape_.out_features, shape_.in_features, DTypeName(shape_.dtype), best.size(),
        std::chrono::duration<double>(Clock::now() - begin).count(), fewest, first.measured_us, NameOf(first),
        most, last.measured_us, NameOf(last));
  }
  return best;
}

bool LinearTuner::AllocateMatrices(int64_t max_rows) {
  const auto rows = static_cast<size_t>(max_rows);
  const auto l2_bytes = static_cast<size_t>(runner_->target().l2_bytes);
  const auto take = [&](size_t bytes, Buffer* buffer) {
    auto memory = device_->Allocate(bytes, MemoryKind::kDevice, "measuring linear operations");
    if (!memory.ok()) {
      LogWarn("products with weights [{}, {}] are not measured: {}", shape_.out_features, shape_.in_features,
              memory.error().message);
      return false;
    }
    *buffer = std::move(memory).value();
    return true;
  };
  if (!take(rows * static_cast<size_t>(shape_.in_features) * DTypeSize(shape_.dtype), &x_) ||
      !take(rows * static_cast<size_t>(shape_.out_features) * DTypeSize(shape_.y_dtype), &y_) ||
      !take(2 * l2_bytes / 256 * 256 + 256, &flush_)) {
    return false;
  }
  constexpr uint64_t kSeed = 1;
  LaunchFillRandom(*stream_, Args(max_rows, 0).x, kSeed, 1.0F);
  return true;
}

LinearArgs LinearTuner::Args(int64_t rows, size_t weight) const {
  LinearArgs args;
  args.x = MatrixView::Dense(x_.data(), shape_.dtype, rows, shape_.in_features);
  args.weight = tuning_.weights[weight % tuning_.weights.size()];
  args.y = MatrixView::Dense(y_.data(), shape_.y_dtype, rows, shape_.out_features);
  return args;
}

std::vector<LinearTuner::Candidate> LinearTuner::Search(int64_t rows,
                                                        const std::vector<LinearAlgorithm>& hints, bool wide,
                                                        Clock::time_point deadline) {
  constexpr size_t kMany = 32;
  constexpr size_t kFew = 3;
  // More rows than this fill the GPU without a split, and every measurement takes long.
  constexpr int64_t kMaxRowsOfSplits = 1024;
  candidates_.clear();
  deadline_ = deadline;
  for (const LinearAlgorithm& hint : hints) Try(rows, hint);
  TryHeuristics(rows, wide ? kMany : kFew);
  TrySkinny(rows);
  if (wide && rows <= kMaxRowsOfSplits) {
    for (const LinearAlgorithm& base : BestOfCublasLt(2)) TrySplitsAndClusters(rows, base);
  }
  if (wide) {
    for (const LinearAlgorithm& base : BestOfCublasLt(1)) TryTilesAndStages(rows, base);
    if (rows <= kMaxRowsOfSplits) {
      for (const LinearAlgorithm& base : BestOfCublasLt(1)) TrySplitsAndClusters(rows, base);
    }
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
  return candidates_;
}

void LinearTuner::TryHeuristics(int64_t rows, size_t max_count) {
  const LinearArgs args = Args(rows, 0);
  const std::optional<LinearAlgorithm> first = runner_->FirstChoice(args);
  if (!first) return;
  Try(rows, *first);
  LinearAlgorithm algorithm;
  algorithm.separate_bias = first->separate_bias;
  for (const LinearMethod method : {LinearMethod::kCublasLt, LinearMethod::kCublasLtRowMajor}) {
    if (method == LinearMethod::kCublasLtRowMajor && !use_row_major_) continue;
    algorithm.method = method;
    const CublasLtProduct product = runner_->Product(method, args, algorithm.separate_bias);
    for (const size_t workspace_bytes : {kLinearWorkspaceBytes, size_t{4} << 20, size_t{0}}) {
      for (const cublasLtMatmulAlgo_t& lt :
           product.Heuristics(workspace_bytes, static_cast<int>(max_count))) {
        algorithm.lt = lt;
        Try(rows, algorithm);
      }
    }
  }
}

void LinearTuner::TrySkinny(int64_t rows) {
  LinearAlgorithm algorithm;
  algorithm.method = LinearMethod::kSkinny;
  for (int variant = 0; variant < kNumSkinnyVariants; ++variant) {
    algorithm.skinny_variant = variant;
    Try(rows, algorithm);
  }
}

void LinearTuner::TrySplitsAndClusters(int64_t rows, const LinearAlgorithm& base) {
  constexpr std::array<uint16_t, 8> kClusters = {CUBLASLT_CLUSTER_SHAPE_AUTO,  CUBLASLT_CLUSTER_SHAPE_1x1x1,
                                                 CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1,
                                                 CUBLASLT_CLUSTER_SHAPE_4x1x1, CUBLASLT_CLUSTER_SHAPE_1x4x1,
                                                 CUBLASLT_CLUSTER_SHAPE_2x2x1, CUBLASLT_CLUSTER_SHAPE_8x1x1};
  constexpr std::array<int32_t, 7> kSplits = {1, 2, 3, 4, 5, 6, 8};
  for (const int32_t splits : kSplits) {
    LinearAlgorithm split = base;
    const uint32_t reduction =
        splits == 1 ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (!SetConfig(&split, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, splits) ||
        !SetConfig(&split, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, reduction)) {
      continue;
    }
    for (const uint16_t cluster : kClusters) {
      LinearAlgorithm mutated = split;
      if (SetConfig(&mutated, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster)) Try(rows, mutated);
    }
  }
}

void LinearTuner::TryTilesAndStages(int64_t rows, const LinearAlgorithm& base) {
  for (const uint32_t stages : CapabilityIds(base.lt, CUBLASLT_ALGO_CAP_STAGES_IDS)) {
    LinearAlgorithm mutated = base;
    if (SetConfig(&mutated, CUBLASLT_ALGO_CONFIG_STAGES_ID, stages)) Try(rows, mutated);
  }
  for (const uint32_t tile : CapabilityIds(base.lt, CUBLASLT_ALGO_CAP_TILE_IDS)) {
    LinearAlgorithm mutated = base;
    if (SetConfig(&mutated, CUBLASLT_ALGO_CONFIG_TILE_ID, tile)) Try(rows, mutated);
  }
  for (const uint32_t swizzle : {0U, 1U}) {
    LinearAlgorithm mutated = base;
    if (SetConfig(&mutated, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, swizzle)) Try(rows, mutated);
  }
}

void LinearTuner::Try(int64_t rows, const LinearAlgorithm& algorithm) {
  // There is always one that is measured.
  if (!candidates_.empty() && Clock::now() > deadline_) return;
  const bool known = std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
    return SameAlgorithm(candidate.algorithm, algorithm);
  });
  if (known || !runner_->CanRun(Args(rows, 0), algorithm)) return;
  const std::unique_ptr<Graph> graph = Capture(rows, algorithm);
  if (graph == nullptr) return;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates_) best_us = std::min(best_us, candidate.us);
  double us = ReplayUs(*graph, rows);
  if (us < kHopeless * best_us) us = std::min(us, ReplayUs(*graph, rows));
  candidates_.push_back({algorithm, us});
}

std::vector<LinearAlgorithm> LinearTuner::BestOfCublasLt(size_t max_count) const {
  std::vector<Candidate> sorted;
  for (const Candidate& candidate : candidates_) {
    if (candidate.algorithm.method != LinearMethod::kSkinny) sorted.push_back(candidate);
  }
  std::sort(sorted.begin(), sorted.end(), [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
  std::vector<LinearAlgorithm> best;
  for (size_t i = 0; i < std::min(sorted.size(), max_count); ++i) best.push_back(sorted[i].algorithm);
  return best;
}

bool LinearTuner::Decide(int64_t rows, std::vector<Candidate>* candidates) {
  const size_t num_finalists = std::min(candidates->size(), kNumFinalists);
  std::vector<std::unique_ptr<Graph>> graphs;
  for (size_t i = 0; i < num_finalists; ++i) {
    graphs.push_back(Capture(rows, (*candidates)[i].algorithm));
    (*candidates)[i].us = std::numeric_limits<double>::infinity();
  }
  for (int round = 0; round < kFinalRounds; ++round) {
    for (size_t i = 0; i < num_finalists; ++i) {
      if (graphs[i] != nullptr)
        (*candidates)[i].us = std::min((*candidates)[i].us, ReplayUs(*graphs[i], rows));
    }
  }
  std::sort(candidates->begin(), candidates->begin() + static_cast<int64_t>(num_finalists),
            [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
  const std::optional<LinearAlgorithm> first = runner_->FirstChoice(Args(rows, 0));
  if (!first) return false;
  const std::vector<float> reference = ResultOf(rows, *first);
  if (reference.empty()) return false;
  while (!candidates->empty()) {
    const std::vector<float> result = ResultOf(rows, candidates->front().algorithm);
    const double error =
        result.empty() ? std::numeric_limits<double>::infinity() : RelativeErrorOf(result, reference);
    if (error < kMaxError) return true;  // false for NaN
    LogDebug("products [{}, {}] of {} rows: a candidate of {} is wrong by {}", shape_.out_features,
             shape_.in_features, rows, NameOf(candidates->front().algorithm), error);
    candidates->erase(candidates->begin());
  }
  return false;
}

std::unique_ptr<Graph> LinearTuner::Capture(int64_t rows, const LinearAlgorithm& algorithm) {
  // Outside of a graph first: this loads the kernel, and here a refusal does no harm.
  if (!runner_->Run(*stream_, Args(rows, next_weight_), algorithm)) return nullptr;
  const int64_t products = ProductsInGraph(rows);
  bool captured = true;
  stream_->BeginCapture();
  for (int64_t i = 0; i < products; ++i) {
    captured = runner_->Run(*stream_, Args(rows, next_weight_++), algorithm) && captured;
  }
  std::unique_ptr<Graph> graph = stream_->EndCapture();
  return captured ? std::move(graph) : nullptr;
}

double LinearTuner::ReplayUs(Graph& graph, int64_t rows) {
  // Takes the weights out of the L2, and is long enough for the graph to be enqueued meanwhile.
  LaunchReadAll(*stream_, flush_.data(), flush_.size_bytes(), y_.data());
  TANDEM_CUDA_CHECK(cudaEventRecord(events_[0], stream_->handle()));
  stream_->Launch(graph);
  TANDEM_CUDA_CHECK(cudaEventRecord(events_[1], stream_->handle()));
  TANDEM_CUDA_CHECK(cudaEventSynchronize(events_[1]));
  float elapsed_ms = 0.0F;
  TANDEM_CUDA_CHECK(cudaEventElapsedTime(&elapsed_ms, events_[0], events_[1]));
  return double{elapsed_ms} * 1e3 / static_cast<double>(ProductsInGraph(rows));
}

int64_t LinearTuner::ProductsInGraph(int64_t rows) const {
  // Long enough to be measured, short enough for a hundred candidates; no weight twice if the L2 could then
  // hold it. Rates: rough ones of a large GPU.
  constexpr double kBytesPerUs = 4e6;
  constexpr double kFlopsPerUs = 6e8;
  constexpr double kWantedUs = 250.0;
  constexpr int64_t kMaxProducts = 32;
  const double weight_elements =
      static_cast<double>(shape_.out_features) * static_cast<double>(shape_.in_features);
  const double weight_bytes = weight_elements * static_cast<double>(DTypeSize(shape_.dtype));
  const double product_us =
      std::max(weight_bytes / kBytesPerUs, 2.0 * weight_elements * static_cast<double>(rows) / kFlopsPerUs);
  auto products = static_cast<int64_t>(kWantedUs / product_us) + 1;
  if (weight_bytes < 2.0 * runner_->target().l2_bytes) {
    const double all_bytes = weight_bytes * static_cast<double>(tuning_.weights.size());
    const auto distinct = static_cast<int64_t>(tuning_.weights.size());
    if (all_bytes < 4.0 * runner_->target().l2_bytes) products = std::min(products, distinct);
  }
  return std::clamp<int64_t>(products, 1, kMaxProducts);
}

std::vector<float> LinearTuner::ResultOf(int64_t rows, const LinearAlgorithm& algorithm) {
  constexpr int64_t kMaxSampledRows = 16;
  const LinearArgs args = Args(rows, 0);
  const auto row_bytes = static_cast<size_t>(args.y.cols) * DTypeSize(args.y.dtype);
  // NaN in every type: what is not written does not pass.
  TANDEM_CUDA_CHECK(
      cudaMemsetAsync(args.y.data, 0xff, static_cast<size_t>(rows) * row_bytes, stream_->handle()));
  if (!runner_->Run(*stream_, args, algorithm)) return {};
  const int64_t step = std::max<int64_t>(1, rows / kMaxSampledRows);
  const int64_t sampled = (rows + step - 1) / step;
  std::vector<std::byte> bytes(static_cast<size_t>(sampled) * row_bytes);
  TANDEM_CUDA_CHECK(cudaMemcpy2DAsync(bytes.data(), row_bytes, args.y.data,
                                      static_cast<size_t>(step) * row_bytes, row_bytes,
                                      static_cast<size_t>(sampled), cudaMemcpyDefault, stream_->handle()));
  stream_->Synchronize();
  std::vector<float> values(static_cast<size_t>(sampled * args.y.cols));
  const size_t element_bytes = DTypeSize(args.y.dtype);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = ToFloat(args.y.dtype, bytes.data() + i * element_bytes);
  return values;
}

}  // namespace tandem
