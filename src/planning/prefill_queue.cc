#include "planning/prefill_queue.h"

#include <algorithm>
#include <cmath>

#include "base/round_up.h"
#include "planning/coming_prefix.h"
#include "planning/copy_down.h"

namespace tandem {
namespace {

// Whether a prompt can pass through the device and be held once the tier is empty.
bool CanEverLiveInCpuTier(const ScheduleState& state, const TierBooks& books, int64_t num_tokens) {
  return state.cpu_tier_usable && books.BlocksFor(num_tokens) <= books.total_blocks(Tier::kCpu) &&
         RoundUp(num_tokens, books.block_size()) <= state.limits.max_transit_tokens;
}

// Who is admitted into a tier that has not room for all to grow is pushed out again once that has run out. If
// all that was computed of it is computed again, that is worth it if it has generated enough by then: so many
// blocks last until it has.
int64_t BlocksWorthKeeping(const TierBooks& books, std::optional<double> decodes_per_recomputed,
                           int64_t num_tokens) {
  if (!decodes_per_recomputed) return books.tuning().MostBlocksKept(books.total_blocks(Tier::kGpu));
  const double num_decoded = *decodes_per_recomputed * static_cast<double>(num_tokens);
  const auto num_growing = static_cast<double>(books.num_sequences(Tier::kGpu) + 1);
  const double num_blocks = num_decoded * num_growing / static_cast<double>(books.block_size());
  // Each has begun its last block: without a free one they grow until the first of those is full.
  const double all_blocks =
      std::min(std::ceil(num_blocks), static_cast<double>(books.total_blocks(Tier::kGpu)));
  return std::max<int64_t>(0, static_cast<int64_t>(all_blocks) - 1);
}

// Blocks of the gpu tier for a prompt of num_tokens, beside those that are kept for outputs to grow; may be
// negative.
int64_t GpuBlocksForPrompt(const ScheduleState& state, const AdmissionRules& rules, const TierBooks& books,
                           int64_t num_tokens) {
  return books.spare_blocks(Tier::kGpu) -
         state.gpu_blocks_to_keep(books.num_sequences(Tier::kGpu), books.block_size(),
                                  BlocksWorthKeeping(books, rules.decodes_per_recomputed, num_tokens));
}

bool FitsCpuTier(const ScheduleState& state, const TierBooks& books, int64_t num_blocks) {
  const int64_t reserve =
      books.num_sequences(Tier::kCpu) == 0 ? 0 : state.limits.reserve_blocks + books.GrowthAhead(Tier::kCpu);
  return num_blocks + reserve <= books.spare_blocks(Tier::kCpu);
}

}  // namespace

PrefillQueue::PrefillQueue(const ScheduleState& state, const LayerCosts& costs, const AdmissionRules& rules,
                           int64_t max_rows, TierBooks* books)
    : rows_left_(max_rows), transit_left_(state.limits.max_transit_tokens), transit_(rules.transit) {
  if (transit_.in_flight != nullptr) {
    for (const RowSpan& span : transit_.in_flight->rows)
      transit_left_ -= RoundUp(span.end(), books->block_size());
  }
  AddBegun(state, costs, *books);
  num_begun_ = items_.size();
  // After a preemption or a swap out blocks are scarce: whoever begins would only push out the next one.
  if (books->preempted().empty() && !books->any_swapped_out()) AddWaiting(state, costs, rules, books);
  Sum(costs);
}

bool PrefillQueue::AddInTransit(const Item& prompt, int64_t most_tokens, const LayerCosts& costs) {
  if (transit_.in_flight != nullptr || most_tokens <= 0) return false;
  const int64_t num_tokens = TokensInTransit(transit_, costs, entering_transit_, prompt.start, most_tokens);
  if (num_tokens <= 0) return false;
  in_transit_.push_back(prompt);
  in_transit_.back().num_tokens = num_tokens;
  entering_transit_.push_back(prompt.Span(num_tokens));
  return true;
}

bool PrefillQueue::Add(const Item& prompt, const ScheduleState& state, const LayerCosts& costs,
                       int64_t block_size) {
  int64_t num_tokens = std::min(rows_left_, prompt.end - prompt.start);
  if (prompt.tier == Tier::kCpu) {
    num_tokens = std::min(num_tokens, TransitRoom(prompt.start, block_size));
    if (!state.cpu_tier_usable) num_tokens = 0;
  }
  if (num_tokens <= 0) return false;
  const bool several = TakesSeveralIterations(prompt, costs);
  if (several) {
    if (!AddInTransit(prompt, std::min(num_tokens, transit_.max_rows - NumRowsOf(entering_transit_)), costs))
      return false;
    num_tokens = in_transit_.back().num_tokens;
  }
  // Others wait for it either way.
  if (!several && prompt.only_cpu)
    num_tokens = TokensInOneIteration(transit_, costs, prompt.start, num_tokens);
  rows_left_ -= num_tokens;
  // All of the context is in the transit buffer, not the chunk alone.
  if (prompt.tier == Tier::kCpu) transit_left_ -= RoundUp(prompt.start + num_tokens, block_size);
  if (several) return true;
  items_.push_back(prompt);
  items_.back().num_tokens = num_tokens;
  return true;
}

void PrefillQueue::AddBegun(const ScheduleState& state, const LayerCosts& costs, const TierBooks& books) {
  for (const RunningSequence& each : books.sequences()) {
    if (rows_left_ <= 0) return;
    // A prompt that has just been moved goes on in the next iteration.
    if (each.preempted || each.decoding || each.moved || each.in_flight) continue;
    Add({.id = each.id,
         .start = each.num_computed,
         .end = each.num_tokens,
         .first_logits = each.first_logits,
         .tier = each.tier,
         .only_cpu = each.needed_blocks > books.total_blocks(Tier::kGpu)},
        state, costs, books.block_size());
  }
}

PrefillQueue::Prefix PrefillQueue::FindPrefix(const ScheduleState& state, const ScheduledSequence& waiting,
                                              const TierBooks& books) {
  Prefix prefix;
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    if (tier == Tier::kCpu && !state.cpu_tier_usable) continue;
    CachedPrefix& in_tier = prefix.in[static_cast<size_t>(tier)];
    in_tier = books.capacity().cached_prefix(waiting.id, tier, waiting.first_logits());
    // It may be those that leave who hold it, and what they leave counts as free.
    if (!books.moves().empty()) in_tier.num_unused = in_tier.num_blocks;
    if (in_tier.num_blocks > prefix.longest().num_blocks) prefix.tier = tier;
  }
  return prefix;
}

void PrefillQueue::AddWaiting(const ScheduleState& state, const LayerCosts& costs,
                              const AdmissionRules& rules, TierBooks* books) {
  int64_t num_passed_over = 0;
  bool to_cpu = true;
  const int64_t left_to_copies = BlocksLeftToCopies(state, *books);
  std::optional<SequenceId> waits_for_blocks;  // the first that only the cpu tier can hold
  for (const ScheduledSequence& waiting : state.waiting) {
    if (rows_left_ <= 0 || books->num_sequences() >= state.limits.max_num_seqs) return;
    // Ids are in order of arrival.
    const auto most_that_pass = static_cast<SequenceId>(books->tuning().most_that_pass);
    if (waits_for_blocks && waiting.id > *waits_for_blocks + most_that_pass) return;
    const Prefix prefix = FindPrefix(state, waiting, *books);
    if (IsComing(books->capacity(), waiting, prefix.longest().num_blocks, items_, &Item::id)) {
      if (++num_passed_over == books->tuning().most_passed_over) return;
      continue;
    }
    const int64_t num_blocks = books->BlocksFor(waiting.num_tokens);
    const bool only_cpu = num_blocks > books->total_blocks(Tier::kGpu);
    const bool cpu_possible = CanEverLiveInCpuTier(state, *books, waiting.num_tokens);
    const bool cpu_wanted =
        only_cpu || (rules.to_cpu && books->num_sequences(Tier::kCpu) < rules.max_cpu_sequences);
    const bool gpu_wanted = rules.to_gpu && !(rules.cpu_first && cpu_possible);
    Tier tier = Tier::kGpu;
    const bool waits_for_gpu_tier =
        !gpu_wanted ||
        num_blocks - prefix.num_shared(tier) > GpuBlocksForPrompt(state, rules, *books, waiting.num_tokens);
    if (waits_for_gpu_tier) {
      tier = Tier::kCpu;
      if (!to_cpu || !cpu_wanted || !cpu_possible ||
          !FitsCpuTier(state, *books, num_blocks - prefix.num_shared(tier))) {
        if (!only_cpu || !cpu_possible) return;
        if (!waits_for_blocks) waits_for_blocks = waiting.id;
        to_cpu = false;
        continue;
      }
    }
    Item prompt = {.id = waiting.id,
                   .start = prefix.longest().num_blocks * books->block_size(),
                   .end = waiting.num_tokens,
                   .first_logits = waiting.first_logits(),
                   .tier = tier,
                   .only_cpu = only_cpu};
    if (prompt.start > 0) prompt.attached = prefix.tier;
    if (only_cpu && WaitsForTransit(prompt, costs, books->block_size())) {
      // Others that would take its room in the cpu tier do not pass.
      to_cpu = false;
      if (++num_passed_over == books->tuning().most_passed_over) return;
      continue;
    }
    // Some iterations later what it would push out is in the cpu tier.
    if (tier == Tier::kGpu &&
        num_blocks - prefix.num_shared(tier) > books->spare_blocks(Tier::kGpu) - left_to_copies)
      return;
    // Until they have moved. What this plan gives out is no longer there.
    const int64_t num_held = prompt.attached && prefix.tier != tier ? prefix.longest().num_unused : 0;
    if (num_held > 0 && num_held > books->spare_blocks(prefix.tier)) return;
    if (!Add(prompt, state, costs, books->block_size())) return;
    books->Admit(tier, num_blocks - prefix.num_shared(tier));
    books->Hold(prefix.tier, num_held);
  }
}

void PrefillQueue::Sum(const LayerCosts& costs) {
  for (const Item& item : items_) {
    const int64_t end = item.start + item.num_tokens;
    token_sums_.push_back(token_sums_.back() + item.num_tokens);
    swapped_sums_.push_back(swapped_sums_.back() + (item.tier == Tier::kCpu ? item.num_tokens : 0));
    sampled_sums_.push_back(sampled_sums_.back() + item.Span(item.num_tokens).num_sampled());
    attention_sums_.push_back(attention_sums_.back() + costs.PrefillAttentionUs(item.num_tokens, end));
    if (item.tier != Tier::kGpu) continue;
    tokens_to_last_gpu_chunk_ = token_sums_.back();
    ++num_gpu_prompts_;
  }
}

double PrefillQueue::mean_prompt() const {
  int64_t sum = 0;
  int64_t count = 0;
  for (const Item& item : items_) {
    // It is none of those that the gpu tier takes in one after the other.
    if (item.only_cpu) continue;
    sum += item.end - (item.attached ? item.start : 0);
    ++count;
  }
  return count == 0 ? 1 : static_cast<double>(sum) / static_cast<double>(count);
}

size_t PrefillQueue::NumWhole(int64_t num_tokens) const {
  const auto past = std::upper_bound(token_sums_.begin(), token_sums_.end(), num_tokens);
  return static_cast<size_t>(past - token_sums_.begin()) - 1;
}

int64_t PrefillQueue::WithoutSliver(int64_t num_tokens, const LayerCosts& costs) const {
  const size_t whole = NumWhole(num_tokens);
  if (num_tokens == token_sums_[whole]) return num_tokens;
  const Item& cut = items_[whole];
  if (cut.tier != Tier::kCpu || cut.start == 0) return num_tokens;
  const int64_t num_hidden = TokensHiddenByCopies(transit_, costs, cut.start, cut.num_tokens);
  return std::max(num_tokens, token_sums_[whole] + num_hidden);
}

void PrefillQueue::WritePrefix(const Item& item, IterationPlan* plan) {
  if (!item.attached) return;
  plan->attached.push_back({.sequence = item.id, .tier = *item.attached, .num_tokens = item.start});
  if (*item.attached != item.tier) plan->moves.push_back({.sequence = item.id, .to = item.tier});
}

void PrefillQueue::Write(int64_t num_tokens, IterationPlan* plan) const {
  for (const Item& item : in_transit_) WritePrefix(item, plan);
  for (const Item& item : items_) {
    if (num_tokens <= 0) return;
    const int64_t taken = std::min(num_tokens, item.num_tokens);
    num_tokens -= taken;
    plan->main.spans.push_back(item.Span(taken));
    WritePrefix(item, plan);
  }
}

void PrefillQueue::AddTo(int64_t num_tokens, const LayerCosts& costs, IterationLoad* load) const {
  const size_t whole = NumWhole(num_tokens);
  load->prefill_tokens = std::min(num_tokens, token_sums_.back());
  load->prefill_attention_us = attention_sums_[whole];
  load->num_sampled += sampled_sums_[whole];
  load->swapped_tokens += swapped_sums_[whole];
  const int64_t rest = load->prefill_tokens - token_sums_[whole];
  if (rest == 0) return;
  const Item& item = items_[whole];
  load->prefill_attention_us += costs.PrefillAttentionUs(rest, item.start + rest);
  load->num_sampled += item.Span(rest).num_sampled();
  if (item.tier == Tier::kCpu) load->swapped_tokens += rest;
}

}  // namespace tandem
