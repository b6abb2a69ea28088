// Kernels of the sampling op and what they exchange with the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// A logit and its token as one number, in the order best first = largest: the logit's bits made to order like
// integers (NaN below -inf, +0 = -0) above the complement of the token.
constexpr int32_t TokenOfKey(uint64_t key) {
  return static_cast<int32_t>(0xffffffffU - static_cast<uint32_t>(key));
}

// Parts that a row is cut into, each the work of one CTA.
int GreedyParts(const CudaTarget& target, int64_t num_rows, int64_t vocab);

// keys[i * parts + p] = key of the best logit of part p of row rows[i] of logits (i if rows is nullptr); 0 if
// all are NaN. rows, keys: device memory.
void LaunchGreedy(CudaStream& stream, const MatrixView& logits, const int32_t* rows, int64_t num_rows,
                  int parts, uint64_t* keys);

// One row of LaunchSampleRows. Lists are given by their place in the array of lists; a bias is a token and
// then the bits of an fp32 value.
struct SampleRowParams {
  double uniform;  // the draw, [0, 1)
  int64_t first_entry;
  int32_t table_capacity;  // a power of two above the number of listed tokens; 0: no lists
  int32_t logits_row;
  int32_t forced_token;  // -1: none
  int32_t draws;         // 0: the best logit is taken
  float temperature;
  float min_p_offset;  // of the lowest logit from the largest; -inf: none
  float top_p;
  int32_t top_k;  // 0: all
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
  int32_t first_bias;
  int32_t num_bias;
  int32_t first_banned;
  int32_t num_banned;
  int32_t first_output;
  int32_t num_output;
  int32_t first_prompt;
  int32_t num_prompt;
  int32_t first_allowed;  // words of a mask of the vocabulary; -1: every token
  int32_t num_top;        // -1: no log-probabilities
  int32_t first_top;
};

// An entry of the hash table of the tokens whose logits are changed.
struct ChangedToken {
  uint32_t token_plus_1;  // 0: no entry
  uint32_t marks;         // bit 0: in the prompt, bit 1: banned, above: times in the output
  float bias;
  float raw;  // the logit before
};

struct SampleRowResult {
  int32_t token;
  int32_t rank;
  float logit;      // of the token, before changes; this and what follows: if log-probabilities are wanted
  float max_logit;  // of the row, before changes
  uint64_t sum;     // of exp(logit - max_logit), times kWeightOne; 0 if max_logit is not finite
  int32_t num_top;
  int32_t padding;
};

struct TopLogit {
  int32_t token;
  float logit;
};

// Weights are integers, so that their sums do not depend on an order. 2^18 of the largest fit.
constexpr double kWeightOne = 0x1p44;
constexpr int64_t kMaxSampleVocab = int64_t{1} << 19;
constexpr int32_t kMaxTopLogits = 1024;

// How rows are spread over CTAs, found out once a GPU or slice.
struct SampleRowsLayout {
  int cluster_size = 1;  // CTAs a row
  size_t max_cache_bytes = 0;
};
SampleRowsLayout ChooseSampleRowsLayout(CudaStream& stream);

// Everything that params ask for. All pointers are device memory.
struct SampleRowsArgs {
  MatrixView logits;  // changed
  const SampleRowParams* params = nullptr;
  int64_t num_rows = 0;
  bool has_masks = false;  // any of them
  const int32_t* lists = nullptr;
  ChangedToken* entries = nullptr;  // need not be initialized
  SampleRowResult* results = nullptr;
  TopLogit* tops = nullptr;
};
void LaunchSampleRows(CudaStream& stream, const SampleRowsLayout& layout, const SampleRowsArgs& args);

// drawn[places[i]] = the token of greedy row i, drawn[places[num_greedy + i]] that of general row i. keys and
// results: of LaunchGreedy and LaunchSampleRows. places: device memory; nullptr: i and num_greedy + i.
struct CollectDrawnArgs {
  const uint64_t* keys = nullptr;
  int64_t num_greedy = 0;
  int parts = 1;
  const SampleRowResult* results = nullptr;
  int64_t num_general = 0;
  const int32_t* places = nullptr;
  int32_t* drawn = nullptr;
};
void LaunchCollectDrawn(CudaStream& stream, const CollectDrawnArgs& args);

}  // namespace tandem
