#include "ops/host/sampling/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/token_mask.h"

namespace tandem {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
// Below this a draw cannot differ from the maximum except by rounding.
constexpr float kGreedyTemperature = 1e-5F;
// What a log-probability that is no number is reported as (JSON has no NaN and no infinity).
constexpr float kNoLogprob = -9999.0F;

struct Candidate {
  int32_t id = 0;
  float logit = 0.0F;
  float weight = 0.0F;
};

bool BetterThan(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Reused by all rows of a thread: a vocabulary's worth of memory each.
struct Workspace {
  std::vector<float> logits;
  std::vector<int32_t> counts;  // by token; all zero between rows
  std::vector<int32_t> seen;
  std::vector<float> block_values;
  std::vector<int32_t> ids;
  std::vector<float> values;
  std::vector<float> weights;
  std::vector<Candidate> candidates;
};

Workspace& ThreadWorkspace() {
  thread_local Workspace workspace;
  return workspace;
}

bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0F || row.frequency_penalty != 0.0F || row.presence_penalty != 0.0F;
}

void ApplyPenalties(const SampleRow& row, std::span<float> logits, Workspace& work) {
  const auto vocab = static_cast<int64_t>(logits.size());
  work.counts.resize(std::max(work.counts.size(), logits.size()));
  work.seen.clear();
  // counts: 1 + occurrences in the output, 0 for tokens that did not occur.
  const auto see = [&](int32_t token, int32_t occurrences) {
    if (token < 0 || token >= vocab) return;
    int32_t& count = work.counts[static_cast<size_t>(token)];
    if (count == 0) {
      work.seen.push_back(token);
      count = 1;
    }
    count += occurrences;
  };
  for (const int32_t token : row.output_tokens) see(token, 1);
  if (row.repetition_penalty != 1.0F) {
    for (const int32_t token : row.prompt_tokens) see(token, 0);
  }
  for (const int32_t token : work.seen) {
    int32_t& count = work.counts[static_cast<size_t>(token)];
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0.0F ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    const int32_t occurrences = count - 1;
    if (occurrences > 0) {
      logit -= row.frequency_penalty * static_cast<float>(occurrences);
      logit -= row.presence_penalty;
    }
    count = 0;
  }
}

// The row's own logits where all tokens are allowed, else a copy in which the others are out of the question.
std::span<const float> AllowedLogits(std::span<const float> logits, const SampleRow& row, Workspace& work) {
  if (row.allowed_tokens.empty()) return logits;
  work.logits.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    work.logits[i] = IsInMask(row.allowed_tokens, i) ? logits[i] : kNegativeInfinity;
  }
  return work.logits;
}

// The logits to choose from: the row's own where nothing changes them, else a changed copy.
std::span<const float> AdjustedLogits(std::span<const float> raw, const SampleRow& row, Workspace& work) {
  const std::span<const float> logits = AllowedLogits(raw, row, work);
  if (row.logit_bias.empty() && row.banned_tokens.empty() && !HasPenalties(row)) return logits;
  if (logits.data() != work.logits.data()) work.logits.assign(logits.begin(), logits.end());
  const auto vocab = static_cast<int64_t>(logits.size());
  for (const auto& [token, bias] : row.logit_bias) {
    if (token >= 0 && token < vocab) work.logits[static_cast<size_t>(token)] += bias;
  }
  for (const int32_t token : row.banned_tokens) {
    if (token >= 0 && token < vocab) work.logits[static_cast<size_t>(token)] = kNegativeInfinity;
  }
  if (HasPenalties(row)) ApplyPenalties(row, work.logits, work);
  return work.logits;
}

// A bound that at least `wanted` logits reach, and not many more: the wanted-th largest of the blocks'
// maxima.
float LowerBoundOfTop(std::span<const float> logits, int64_t wanted, const RowKernels& kernels,
                      Workspace& work) {
  const int64_t count = std::ssize(logits);
  const int64_t num_blocks = (count + kMaxBlock - 1) / kMaxBlock;
  if (wanted > num_blocks) return kNegativeInfinity;
  work.block_values.resize(static_cast<size_t>(num_blocks));
  kernels.block_max(logits.data(), count, work.block_values.data());
  const auto nth = work.block_values.begin() + (wanted - 1);
  std::nth_element(work.block_values.begin(), nth, work.block_values.end(), std::greater<>());
  return *nth;
}

// work.candidates = all logits >= bound, in order of id, with weights.
void CollectCandidates(std::span<const float> logits, float bound, float max, float inverse_temperature,
                       const RowKernels& kernels, Workspace& work) {
  work.ids.resize(logits.size());
  work.values.resize(logits.size());
  const int64_t found =
      kernels.collect_not_less(logits.data(), std::ssize(logits), bound, work.ids.data(), work.values.data());
  work.weights.resize(static_cast<size_t>(found));
  kernels.exp_weights(work.values.data(), found, max, inverse_temperature, work.weights.data());
  work.candidates.resize(static_cast<size_t>(found));
  for (size_t i = 0; i < work.candidates.size(); ++i) {
    work.candidates[i] = {work.ids[i], work.values[i], work.weights[i]};
  }
}

double WeightSum(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

// Brings the shortest best-first prefix whose weights reach `target` to the front (in no particular order,
// but always the same) and returns its length. Quick selection by weight: the order of the rest does not
// matter.
size_t SelectMass(std::vector<Candidate>& candidates, double target) {
  size_t begin = 0;
  size_t end = candidates.size();
  double mass = 0;  // of [0, begin), all better than the rest
  constexpr size_t kSortDirectly = 64;
  while (end - begin > kSortDirectly) {
    const size_t middle = begin + (end - begin) / 2;
    const auto first = candidates.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(end);
    std::nth_element(first, candidates.begin() + static_cast<std::ptrdiff_t>(middle), last, BetterThan);
    const double better = WeightSum({candidates.data() + begin, middle - begin});
    if (mass + better >= target) {
      end = middle;
    } else {
      mass += better;
      begin = middle;
    }
  }
  std::sort(candidates.begin() + static_cast<std::ptrdiff_t>(begin),
            candidates.begin() + static_cast<std::ptrdiff_t>(end), BetterThan);
  size_t length = begin;
  while (length < candidates.size() && (length == 0 || mass < target) && length < end) {
    mass += candidates[length].weight;
    ++length;
  }
  return std::max<size_t>(length, 1);
}

// candidates: not empty.
int32_t DrawCandidate(std::span<const Candidate> candidates, double uniform) {
  double left = uniform * WeightSum(candidates);
  for (const Candidate& candidate : candidates) {
    left -= candidate.weight;
    if (left < 0) return candidate.id;
  }
  // Rounding used up the sum: the last one that could be drawn at all.
  for (size_t i = candidates.size(); i-- > 0;) {
    if (candidates[i].weight > 0.0F) return candidates[i].id;
  }
  return candidates.front().id;
}

struct SumBlocks {
  std::span<const float> sums;  // one for each kSumBlock logits
  double total = 0;
};

SumBlocks SumWeights(std::span<const float> logits, float max, float inverse_temperature, float bound,
                     const RowKernels& kernels, Workspace& work) {
  const int64_t count = std::ssize(logits);
  work.block_values.resize(static_cast<size_t>((count + kSumBlock - 1) / kSumBlock));
  kernels.exp_block_sums(logits.data(), count, max, inverse_temperature, bound, work.block_values.data());
  SumBlocks result{work.block_values, 0};
  for (const float sum : result.sums) result.total += sum;
  return result;
}

// Draws among all logits >= bound: finds the block, then the token in it.
int32_t DrawFromAll(std::span<const float> logits, float max, float inverse_temperature, float bound,
                    double uniform, const RowKernels& kernels, Workspace& work) {
  const SumBlocks blocks = SumWeights(logits, max, inverse_temperature, bound, kernels, work);
  double left = uniform * blocks.total;
  size_t block = 0;
  size_t last_with_weight = 0;
  for (; block < blocks.sums.size(); ++block) {
    if (blocks.sums[block] > 0.0F) last_with_weight = block;
    if (left < blocks.sums[block]) break;
    left -= blocks.sums[block];
  }
  block = std::min(block, last_with_weight);
  const size_t begin = block * kSumBlock;
  const std::span<const float> part =
      logits.subspan(begin, std::min<size_t>(kSumBlock, logits.size() - begin));
  CollectCandidates(part, bound, max, inverse_temperature, kernels, work);
  const double part_sum = WeightSum(work.candidates);
  return static_cast<int32_t>(begin) +
         DrawCandidate(work.candidates, part_sum > 0 ? std::min(left / part_sum, 1.0) : 0.0);
}

int32_t Draw(std::span<const float> logits, const SampleRow& row, float max, const RowKernels& kernels,
             Workspace& work) {
  const float inverse_temperature = 1.0F / row.temperature;
  const double uniform = UniformDraw(row.seed, row.position);
  const int64_t vocab = std::ssize(logits);
  float bound = std::numeric_limits<float>::lowest();  // -inf is never drawn
  if (row.min_p > 0.0F) {
    bound = std::max(bound, std::min(max, max + row.temperature * std::log(row.min_p)));
  }
  const bool has_top_k = row.top_k > 0 && row.top_k < vocab;
  const bool has_top_p = row.top_p < 1.0F;
  if (!has_top_k && !has_top_p) {
    return DrawFromAll(logits, max, inverse_temperature, bound, uniform, kernels, work);
  }
  double mass = 0;
  if (has_top_k) {
    const float top_k_bound = std::max(bound, LowerBoundOfTop(logits, row.top_k, kernels, work));
    CollectCandidates(logits, top_k_bound, max, inverse_temperature, kernels, work);
    if (std::ssize(work.candidates) > row.top_k) {
      // Equals of the k-th stay, as in vLLM.
      work.values.resize(work.candidates.size());
      const auto kth = work.values.begin() + (row.top_k - 1);
      std::nth_element(work.values.begin(), kth, work.values.end(), std::greater<>());
      std::erase_if(work.candidates, [&](const Candidate& c) { return c.logit < *kth; });
    }
    mass = WeightSum(work.candidates);
  } else {
    mass = SumWeights(logits, max, inverse_temperature, bound, kernels, work).total;
    // All weights below (1 - p) mass / vocab together are less than (1 - p) mass: none of them is needed.
    // Half of that leaves room for rounding.
    const double least = 0.5 * (1.0 - row.top_p) * mass / static_cast<double>(vocab);
    if (least > 0) {
      const double least_logit = max + row.temperature * std::log(std::min(least, 1.0));
      bound = std::max(bound, std::min(max, static_cast<float>(least_logit)));
    }
    CollectCandidates(logits, bound, max, inverse_temperature, kernels, work);
  }
  if (has_top_p) {
    work.candidates.resize(SelectMass(work.candidates, std::max(0.0F, row.top_p) * mass));
  }
  return DrawCandidate(work.candidates, uniform);
}

int32_t ChooseToken(std::span<const float> raw, const SampleRow& row, const RowKernels& kernels,
                    Workspace& work) {
  std::span<const float> logits = AdjustedLogits(raw, row, work);
  float max = kernels.max(logits.data(), std::ssize(logits));
  // Everything banned: better a banned token than none, and one that is allowed if there is any.
  if (max == kNegativeInfinity) {
    logits = AllowedLogits(raw, row, work);
    max = kernels.max(logits.data(), std::ssize(logits));
  }
  if (max == kNegativeInfinity) {
    logits = raw;
    max = kernels.max(logits.data(), std::ssize(logits));
  }
  const bool finite = std::isfinite(max);
  if (!finite || !(row.temperature >= kGreedyTemperature)) {
    const int64_t best = kernels.find_not_less(logits.data(), std::ssize(logits), max);
    return best < std::ssize(logits) ? static_cast<int32_t>(best) : 0;
  }
  return Draw(logits, row, max, kernels, work);
}

float LogprobOf(float logit, double log_sum) {
  const double logprob = logit - log_sum;
  return std::isfinite(logprob) ? static_cast<float>(logprob) : kNoLogprob;
}

void AddLogprobs(std::span<const float> logits, int32_t num_top, const RowKernels& kernels, Workspace& work,
                 SampledToken& result) {
  const int64_t count = std::ssize(logits);
  const float max = kernels.max(logits.data(), count);
  const SumBlocks blocks = SumWeights(logits, max, 1.0F, std::numeric_limits<float>::lowest(), kernels, work);
  const double log_sum = max + std::log(blocks.total);
  const float own = logits[static_cast<size_t>(result.token)];
  result.logprob = LogprobOf(own, log_sum);
  result.rank = 1 + static_cast<int32_t>(kernels.count_greater(logits.data(), count, own));
  const int64_t wanted = std::min<int64_t>(num_top, count);
  if (wanted <= 0) return;
  const float bound = LowerBoundOfTop(logits, wanted, kernels, work);
  CollectCandidates(logits, bound, max, 1.0F, kernels, work);
  const auto num_found = std::min<std::ptrdiff_t>(wanted, std::ssize(work.candidates));
  std::partial_sort(work.candidates.begin(), work.candidates.begin() + num_found, work.candidates.end(),
                    BetterThan);
  for (std::ptrdiff_t i = 0; i < num_found; ++i) {
    const Candidate& candidate = work.candidates[static_cast<size_t>(i)];
    result.top_logprobs.push_back({candidate.id, LogprobOf(candidate.logit, log_sum)});
  }
}

// The finalizer of SplitMix64: a bijection whose every output bit depends on every input bit.
uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

double UniformDraw(uint64_t seed, uint64_t position) {
  const uint64_t stream = MixBits(seed + 0x9e3779b97f4a7c15U);
  const uint64_t bits = MixBits(stream ^ MixBits(position + 0xd1b54a32d192ed03U));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

SampledToken SampleToken(std::span<const float> logits, const SampleRow& row, const RowKernels& kernels) {
  Workspace& work = ThreadWorkspace();
  SampledToken result;
  result.token = row.forced_token >= 0 ? row.forced_token : ChooseToken(logits, row, kernels, work);
  if (row.num_top_logprobs >= 0) AddLogprobs(logits, row.num_top_logprobs, kernels, work, result);
  return result;
}

}  // namespace tandem
