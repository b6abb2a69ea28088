// What goes to an executor in another process (base/wire.h): of an iteration all but what is of the process
// that plans, which samples and keeps the books.
#pragma once

#include "base/wire.h"
#include "plan/block_move.h"
#include "plan/iteration_input.h"
#include "plan/iteration_plan.h"

namespace tandem {

template <typename Archive>
void OverWire(Archive& archive, RowSpan& span) {
  auto& [sequence, start, num_tokens, sampled_from, tier, attention, beginning, num_shared] = span;
  archive(sequence, start, num_tokens, sampled_from, tier, attention, beginning, num_shared);
}

template <typename Archive>
void OverWire(Archive& archive, Visit& visit) {
  auto& [boundary, layer] = visit;
  archive(boundary, layer);
}

template <typename Archive>
void OverWire(Archive& archive, CohortStep& step) {
  auto& [cohort, rows, cursor, visits, rides] = step;
  archive(cohort, rows, cursor, visits, rides);
}

template <typename Archive>
void OverWire(Archive& archive, Move& move) {
  auto& [sequence, to] = move;
  archive(sequence, to);
}

template <typename Archive>
void OverWire(Archive& archive, IterationPlan& plan) {
  // The strategy and its promise are for people, and who attaches, is preempted and copied down is in block
  // tables and moves.
  auto& [iteration, strategy, promise, dropped, attached, preempted, moves, copy_down, main, cohorts] = plan;
  archive(iteration, dropped, moves, main.spans, cohorts);
}

template <typename Archive>
void OverWire(Archive& archive, BlockMove& move) {
  auto& [sequence, to, source_blocks, destination_blocks] = move;
  archive(sequence, to, source_blocks, destination_blocks);
}

template <typename Archive>
void OverWire(Archive& archive, SpanInput& input) {
  auto& [token_ids, block_table, sampling, given_tokens, pooling] = input;
  // How a token is drawn only rank 0 asks, which has the masks of grammars too.
  bool gives_logits = sampling.has_value();
  archive(token_ids, block_table, gives_logits, given_tokens, pooling);
  if (gives_logits && !sampling) sampling.emplace();
}

template <typename Archive>
void OverWire(Archive& archive, IterationInput& input) {
  auto& [plan, moves, main, cohorts, masks_ready] = input;
  archive(plan, moves, main, cohorts);
}

}  // namespace tandem
