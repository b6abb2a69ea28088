#include "ops/cuda/linear/linear_search.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

namespace tandem {
namespace {

constexpr double kHopeless = 1.25;  // times the best: not measured again

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

}  // namespace

bool SameAlgorithm(const LinearAlgorithm& a, const LinearAlgorithm& b) {
  return a.method == b.method && a.separate_bias == b.separate_bias &&
         a.separate_scales == b.separate_scales && a.streamed == b.streamed &&
         std::memcmp(&a.lt, &b.lt, sizeof(a.lt)) == 0;
}

void SortByTime(std::vector<LinearCandidate>* candidates, size_t count) {
  std::sort(candidates->begin(), candidates->begin() + static_cast<int64_t>(count),
            [](const LinearCandidate& a, const LinearCandidate& b) { return a.us < b.us; });
}

LinearSearch::LinearSearch(LinearRunner* runner, LinearTimer* timer, const CudaOpsOptions& options)
    : runner_(runner), timer_(timer), options_(options) {}

std::vector<LinearCandidate> LinearSearch::Find(int64_t rows, const std::vector<LinearAlgorithm>& hints,
                                                bool wide, Clock::time_point deadline) {
  constexpr size_t kMany = 32;
  constexpr size_t kFew = 3;
  // More rows than this fill the GPU without a split, and every measurement takes long.
  constexpr int64_t kMaxRowsOfSplits = 1024;
  candidates_.clear();
  deadline_ = deadline;
  for (const LinearAlgorithm& hint : hints) Try(rows, hint);
  TryStreamed(rows);
  TryFp8Codes(rows);
  TryHeuristics(rows, wide ? kMany : kFew);
  if (wide && rows <= kMaxRowsOfSplits) {
    for (const LinearAlgorithm& base : BestOfCublasLt(2)) TrySplitsAndClusters(rows, base);
  }
  if (wide) {
    for (const LinearAlgorithm& base : BestOfCublasLt(1)) TryTilesAndStages(rows, base);
    if (rows <= kMaxRowsOfSplits) {
      for (const LinearAlgorithm& base : BestOfCublasLt(1)) TrySplitsAndClusters(rows, base);
    }
  }
  SortByTime(&candidates_, candidates_.size());
  return candidates_;
}

void LinearSearch::TryHeuristics(int64_t rows, size_t max_count) {
  const LinearArgs args = timer_->Args(rows, 0);
  const std::optional<LinearAlgorithm> first = runner_->FirstOfCublasLt(args);
  if (!first) return;
  Try(rows, *first);
  LinearAlgorithm algorithm;
  algorithm.separate_bias = first->separate_bias;
  algorithm.separate_scales = first->separate_scales;
  for (const LinearMethod method : {LinearMethod::kCublasLt, LinearMethod::kCublasLtRowMajor}) {
    if (method == LinearMethod::kCublasLtRowMajor && (timer_->shape().has_bias || timer_->shape().is_fp8()))
      continue;
    algorithm.method = method;
    const CublasLtProduct product = runner_->Product(args, algorithm);
    for (const size_t workspace_bytes : {kLinearWorkspaceBytes, size_t{4} << 20, size_t{0}}) {
      for (const cublasLtMatmulAlgo_t& lt :
           product.Heuristics(workspace_bytes, static_cast<int>(max_count))) {
        algorithm.lt = lt;
        Try(rows, algorithm);
      }
    }
  }
}

void LinearSearch::TryStreamed(int64_t rows) {
  if (!options_.streamed_products || rows > kMaxStreamedRows) return;
  // Those for more rows compute the more for nothing.
  constexpr int64_t kMaxSpareRows = 128;
  for (const StreamedLinear kernel : kStreamedLinears) {
    if (MaxRowsOf(kernel) - rows >= kMaxSpareRows) continue;
    LinearAlgorithm algorithm;
    algorithm.method = LinearMethod::kStreamed;
    algorithm.streamed = kernel;
    Try(rows, algorithm);
  }
}

void LinearSearch::TryFp8Codes(int64_t rows) {
  if (!timer_->shape().is_fp8()) return;
  // Where cuBLASLt computes twice as fast, and the own kernel reads the weights more than once.
  constexpr int64_t kHopelessRows = 512;
  if (rows >= kHopelessRows) return;
  LinearAlgorithm algorithm;
  algorithm.method = LinearMethod::kFp8Codes;
  Try(rows, algorithm);
}

void LinearSearch::TrySplitsAndClusters(int64_t rows, const LinearAlgorithm& base) {
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

void LinearSearch::TryTilesAndStages(int64_t rows, const LinearAlgorithm& base) {
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

void LinearSearch::Try(int64_t rows, const LinearAlgorithm& algorithm) {
  // There is always one that is measured.
  if (!candidates_.empty() && Clock::now() > deadline_) return;
  const bool known = std::any_of(
      candidates_.begin(), candidates_.end(),
      [&](const LinearCandidate& candidate) { return SameAlgorithm(candidate.algorithm, algorithm); });
  if (known || !runner_->CanRun(timer_->Args(rows, 0), algorithm)) return;
  const LinearTimer::Chain chain = timer_->Capture(rows, algorithm);
  if (chain.graph == nullptr) return;
  double best_us = std::numeric_limits<double>::infinity();
  for (const LinearCandidate& candidate : candidates_) best_us = std::min(best_us, candidate.us);
  double us = timer_->TimeUs(chain);
  if (us < kHopeless * best_us) us = std::min(us, timer_->TimeUs(chain));
  candidates_.push_back({algorithm, us});
}

std::vector<LinearAlgorithm> LinearSearch::BestOfCublasLt(size_t max_count) const {
  std::vector<LinearCandidate> sorted = candidates_;
  std::erase_if(sorted, [](const LinearCandidate& candidate) {
    return candidate.algorithm.method == LinearMethod::kStreamed ||
           candidate.algorithm.method == LinearMethod::kFp8Codes;
  });
  SortByTime(&sorted, sorted.size());
  std::vector<LinearAlgorithm> best;
  for (size_t i = 0; i < std::min(sorted.size(), max_count); ++i) best.push_back(sorted[i].algorithm);
  return best;
}

}  // namespace tandem
