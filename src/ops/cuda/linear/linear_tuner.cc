#include "ops/cuda/linear/linear_tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "base/log.h"

namespace tandem {
namespace {

// Whole search of one shape.
constexpr std::chrono::duration<double> kBudget{5.0};
constexpr double kWideShare = 8.0;  // of the budget, against 1 for a row count that only tries hints
constexpr size_t kNumHints = 6;
constexpr size_t kNumFinalists = 4;
constexpr int kFinalRounds = 4;
// From so many rows on arithmetic is the limit, and so, for as long as prompts come, the GPU's power. What is
// fastest on a cool GPU may then not be: of 28672 x 4096 with 2,048 rows on an H100 786 TFLOP/s against 780
// cool, 663 against 684 hot.
constexpr int64_t kSustainedRows = 1024;
constexpr size_t kNumHotFinalists = 6;
// Products in a graph: its launch is then next to nothing beside them. Fewer where they are slow.
constexpr int64_t kHotProducts = 16;
constexpr double kHotGraphUs = 10'000;
// Against cuBLASLt's first choice: enough products for each to start while another ends.
constexpr int kRoundsAgainstFirstChoice = 15;
constexpr int64_t kProductsAgainstFirstChoice = 4;
constexpr int kFusedRounds = 9;
constexpr double kTie = 0.98;  // times the first choice: not better
constexpr double kMaxError = 1e-2;
constexpr double kMaxErrorOfFp8 = 0.1;  // rounding x to FP8 moves a product by 3e-2
// Larger results are not worth their memory.
constexpr size_t kMaxResultBytes = size_t{2} << 30;

bool IsPowerOfTwo(int64_t value) {
  return (value & (value - 1)) == 0;
}

int64_t NumHotProducts(double us) {
  return std::clamp(static_cast<int64_t>(kHotGraphUs / std::max(1.0, us)), int64_t{1}, kHotProducts);
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

}  // namespace

LinearTuner::LinearTuner(Device* device, LinearRunner* runner, CudaStream* stream, const LinearTuning& tuning,
                         const CudaOpsOptions& options)
    : runner_(runner),
      timer_(device, runner, stream, tuning),
      search_(runner, &timer_, options),
      options_(options) {}

bool LinearTuner::IsHot(int64_t rows) const {
  return options_.hot_choice && rows >= kSustainedRows;
}

std::map<int64_t, LinearAlgorithm> LinearTuner::Measure(const std::vector<int64_t>& row_counts) {
  const Clock::time_point begin = Clock::now();
  const ProductKind& shape = timer_.shape();
  const size_t bytes_a_row = static_cast<size_t>(shape.out_features) * DTypeSize(shape.y_dtype);
  std::vector<int64_t> counts;
  for (const int64_t rows : row_counts) {
    if (static_cast<size_t>(rows) * bytes_a_row <= kMaxResultBytes) counts.push_back(rows);
  }
  // Where little memory is left, at least the products of fewer rows.
  while (!counts.empty()) {
    const Status allocated = timer_.AllocateMatrices(counts.back());
    if (allocated.ok()) break;
    LogWarn("products with weights [{}, {}] of {} rows are not measured: {}", shape.out_features,
            shape.in_features, counts.back(), allocated.error().message);
    counts.pop_back();
  }
  if (counts.empty()) return {};

  // The widely searched first: they give the others their hints.
  const auto is_wide = [&](int64_t rows) { return IsPowerOfTwo(rows) || rows == counts.front(); };
  std::stable_partition(counts.begin(), counts.end(), is_wide);
  double shares = 0.0;
  for (const int64_t rows : counts) shares += is_wide(rows) ? kWideShare : 1.0;
  std::map<int64_t, LinearAlgorithm> best;
  std::map<int64_t, std::vector<LinearAlgorithm>> best_of_wide;
  std::map<int64_t, std::vector<LinearCandidate>> of_many_rows;
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
    std::vector<LinearCandidate> candidates = search_.Find(rows, hints, is_wide(rows), deadline);
    const bool decided = IsHot(rows) || Decide(rows, &candidates);
    if (!decided) continue;
    for (size_t i = 0; is_wide(rows) && i < std::min(candidates.size(), kNumHints); ++i)
      best_of_wide[rows].push_back(candidates[i].algorithm);
    if (IsHot(rows)) {
      of_many_rows[rows] = std::move(candidates);
    } else {
      Take(rows, candidates.front(), &best);
    }
  }
  // Behind the search, whose time this is not to take.
  for (auto& [rows, candidates] : of_many_rows) {
    if (Decide(rows, &candidates)) Take(rows, candidates.front(), &best);
  }
  if (shape.is_gate_up && options_.fused_gate_up) {
    for (auto& [rows, algorithm] : best) ChooseFused(rows, &algorithm);
  }
  if (!best.empty()) {
    const auto& [fewest, first] = *best.begin();
    const auto& [most, last] = *best.rbegin();
    LogInfo(
        "products with weights [{}, {}] {}: measured {} row counts in {:.1f} s; {} rows {:.1f} us, {} rows "
        "{:.1f} us",
        shape.out_features, shape.in_features, DTypeName(shape.dtype), best.size(),
        std::chrono::duration<double>(Clock::now() - begin).count(), fewest, first.measured_us, most,
        last.measured_us);
  }
  return best;
}

void LinearTuner::Take(int64_t rows, const LinearCandidate& candidate,
                       std::map<int64_t, LinearAlgorithm>* best) {
  LinearAlgorithm& algorithm = (*best)[rows];
  algorithm = candidate.algorithm;
  algorithm.measured_us = static_cast<float>(candidate.us);
}

void LinearTuner::TimeFinalists(int64_t rows, size_t num_finalists,
                                std::vector<LinearCandidate>* candidates) {
  std::vector<LinearTimer::Chain> chains;
  std::vector<const LinearTimer::Chain*> measured;
  std::vector<LinearCandidate*> measured_candidates;
  chains.reserve(num_finalists);
  for (size_t i = 0; i < num_finalists; ++i) {
    LinearCandidate* candidate = &(*candidates)[i];
    const int64_t num_products = IsHot(rows) ? NumHotProducts(candidate->us) : 1;
    candidate->us = std::numeric_limits<double>::infinity();
    chains.push_back(timer_.Capture(rows, candidate->algorithm, num_products));
    if (chains.back().graph == nullptr) continue;
    measured.push_back(&chains.back());
    measured_candidates.push_back(candidate);
  }
  if (IsHot(rows)) {
    const std::vector<double> times_us = timer_.SustainedTimesUs(measured);
    for (size_t i = 0; i < measured.size(); ++i) measured_candidates[i]->us = times_us[i];
  } else {
    for (int round = 0; round < kFinalRounds; ++round) {
      for (size_t i = 0; i < measured.size(); ++i)
        measured_candidates[i]->us = std::min(measured_candidates[i]->us, timer_.TimeUs(*measured[i]));
    }
  }
  SortByTime(candidates, num_finalists);
}

bool LinearTuner::Decide(int64_t rows, std::vector<LinearCandidate>* candidates) {
  const std::optional<LinearAlgorithm> first = runner_->FirstChoice(timer_.Args(rows, 0));
  if (!first) return false;
  TimeFinalists(rows, std::min(candidates->size(), IsHot(rows) ? kNumHotFinalists : kNumFinalists),
                candidates);
  const std::vector<float> reference = timer_.ResultOf(rows, *first);
  if (reference.empty()) return false;
  while (!candidates->empty()) {
    const std::vector<float> result = timer_.ResultOf(rows, candidates->front().algorithm);
    const double error =
        result.empty() ? std::numeric_limits<double>::infinity() : RelativeErrorOf(result, reference);
    if (error < (timer_.shape().is_fp8() ? kMaxErrorOfFp8 : kMaxError)) {  // false for NaN
      if (!IsHot(rows)) CompareWithFirstChoice(rows, *first, candidates);
      return true;
    }
    LogDebug("products [{}, {}] of {} rows: a candidate is wrong by {}", timer_.shape().out_features,
             timer_.shape().in_features, rows, error);
    candidates->erase(candidates->begin());
  }
  return false;
}

void LinearTuner::CompareWithFirstChoice(int64_t rows, const LinearAlgorithm& first,
                                         std::vector<LinearCandidate>* candidates) {
  LinearCandidate& front = candidates->front();
  if (SameAlgorithm(front.algorithm, first)) return;
  const LinearTimer::Chain of_front = timer_.Capture(rows, front.algorithm, kProductsAgainstFirstChoice);
  const LinearTimer::Chain of_first = timer_.Capture(rows, first, kProductsAgainstFirstChoice);
  if (of_front.graph == nullptr || of_first.graph == nullptr) return;
  const std::vector<double> medians_us =
      timer_.MedianTimesUs({&of_front, &of_first}, kRoundsAgainstFirstChoice);
  front.us = medians_us[0];
  if (front.us >= kTie * medians_us[1]) candidates->insert(candidates->begin(), {first, medians_us[1]});
}

void LinearTuner::ChooseFused(int64_t rows, LinearAlgorithm* algorithm) {
  if (rows < kMinFusedRows || !runner_->CanFuse(timer_.ArgsOfGateUp(rows, 0))) return;
  std::vector<LinearAlgorithm> rivals = {*algorithm};  // the first: not fused
  const std::vector<float> reference = timer_.ResultOfGateUp(rows, *algorithm);
  if (reference.empty()) return;
  for (const FusedGateUp fused : kFusedGateUps) {
    LinearAlgorithm rival = *algorithm;
    rival.fused = fused;
    const double error = RelativeErrorOf(timer_.ResultOfGateUp(rows, rival), reference);
    if (error < kMaxError) {  // false for NaN
      rivals.push_back(rival);
    } else {
      LogWarn("the fused gate-up product {} of {} rows is wrong by {} and not used", FusedGateUpName(fused),
              rows, error);
    }
  }
  std::vector<LinearTimer::Chain> chains;
  const int64_t num_products =
      IsHot(rows) ? NumHotProducts(algorithm->measured_us) : kProductsAgainstFirstChoice;
  for (const LinearAlgorithm& rival : rivals) {
    chains.push_back(timer_.CaptureGateUp(rows, rival, num_products));
    if (chains.back().graph == nullptr) return;
  }
  std::vector<const LinearTimer::Chain*> measured;
  measured.reserve(chains.size());
  for (const LinearTimer::Chain& chain : chains) measured.push_back(&chain);
  const std::vector<double> times_us =
      IsHot(rows) ? timer_.SustainedTimesUs(measured) : timer_.MedianTimesUs(measured, kFusedRounds);
  const auto fastest =
      static_cast<size_t>(std::min_element(times_us.begin(), times_us.end()) - times_us.begin());
  algorithm->fused = rivals[fastest].fused;
  if (fastest > 0) algorithm->fused_us = static_cast<float>(times_us[fastest]);
  LogDebug("gate-up products of {} rows: {:.1f} us not fused, best {} {:.1f} us", rows, times_us[0],
           FusedGateUpName(algorithm->fused), times_us[fastest]);
}

}  // namespace tandem
