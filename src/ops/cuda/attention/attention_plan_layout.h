// What an attention plan holds in GPU memory, as 32-bit words, for the kernels that read it:
//
//   [PlanHeader][first sequence of every CTA of the decode kernel][AttentionPlanSequence x (n + 1)][block
//   tables]
//
// Everything lies at the same place in every plan of one CudaAttentionPlan, except that the block tables
// follow the last sequence, so that one copy carries what is used. A plan of zeros is that of an empty batch.
#pragma once

#include <cstdint>

#include "base/kv_layout.h"

namespace tandem {

// The decode kernel's unit of work: one head of so many tokens, a block of the cache.
constexpr int kDecodeTileTokens = 32;
// The kernel's work stands in one line: by sequence, then kv head, then token, a tile a place. Behind the
// tiles of a head places stay empty, as many as tiles could be had for what it costs to begin and end a head:
// equal ranges of the line then take equally long, also where many short sequences stand.
constexpr int kDecodeHeadPlaces = 1;

struct PlanHeader {
  // The first num_decodes sequences have one row each and are the decode kernel's, if it supports the shape.
  int32_t num_decodes;
  int32_t num_sequences;
  int32_t num_rows;  // of all sequences
  // CTA i of the decode kernel takes [i * places_per_cta, (i + 1) * places_per_cta) of the line.
  int32_t num_places;
  int32_t places_per_cta;
  int32_t unused[3];
};
static_assert(sizeof(PlanHeader) % 16 == 0);

// One more follows the last: row_begin, context_len and table_begin are 0, the other two the totals.
struct AttentionPlanSequence {
  int32_t row_begin;    // of q and out
  int32_t context_len;  // tokens, its rows included
  int32_t table_begin;  // its block numbers begin at this word of the plan
  int32_t place_begin;  // it begins here in the line; of sequences behind num_decodes: num_places
  int32_t num_rows;
  int32_t rows_before;  // rows of the sequences before it
  int32_t unused[2];
};
static_assert(sizeof(AttentionPlanSequence) == 32);

// The same on both sides: tiles of one kv head of a decode that sees window tokens (0: all).
constexpr int32_t FirstVisibleToken(int32_t context_len, int32_t window) {
  return window > 0 && context_len > window ? context_len - window : 0;
}
constexpr int32_t NumDecodeTiles(int32_t context_len, int32_t window) {
  return (context_len + kDecodeTileTokens - 1) / kDecodeTileTokens -
         FirstVisibleToken(context_len, window) / kDecodeTileTokens;
}

// Where a plan's parts begin, in words.
struct PlanOffsets {
  int32_t num_ctas = 0;  // of the decode kernel

  constexpr int32_t first_sequences() const { return static_cast<int32_t>(sizeof(PlanHeader) / 4); }
  // A multiple of 8 words, as the sequences are read in pieces of 16 bytes.
  constexpr int32_t sequences() const { return (first_sequences() + num_ctas + 7) / 8 * 8; }
  constexpr int32_t tables(int32_t num_sequences) const {
    return sequences() + (num_sequences + 1) * static_cast<int32_t>(sizeof(AttentionPlanSequence) / 4);
  }
};

}  // namespace tandem
