// Step 3 of NEO's scheduler (section 3.2): prompts for the main sub-batch, and into which tier each goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "perf/iteration_load.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "planning/schedule_state.h"
#include "planning/tier_books.h"
#include "planning/transit_pass.h"

namespace tandem {

// Who may begin. Chunks of prompts already begun do not ask.
struct AdmissionRules {
  bool to_gpu = true;
  bool to_cpu = true;
  bool cpu_first = false;  // the gpu tier only for what can never live in the cpu tier
  // The cpu tier takes a prompt only while it holds fewer sequences (Balancing: more would only wait there),
  // unless no other tier could ever hold it.
  int64_t max_cpu_sequences = 0;
  TransitRules transit = {};
  // Where who is pushed out of the gpu tier is computed again: decoded tokens that are worth as much as
  // computing one token (infinite: none are). Nothing: it goes to the cpu tier.
  std::optional<double> decodes_per_recomputed = std::nullopt;
};

// Prompts in the order in which they are served: those begun, oldest first, then waiting ones. Nobody
// overtakes, but for those who wait until another prompt has computed what they begin with too; who begins as
// somebody did before begins behind what is cached of that, and what a prompt will need is reserved whole
// when it is admitted, so one that is begun never waits for blocks. A budget of tokens takes a prefix; the
// last prompt in it gets a shorter chunk (NEO section 6: chunks, not whole prompts).
//
// Chunks that take several iterations (planning/transit_pass.h) are apart from that: they enter, whatever the
// budget is, as one cohort in transit, unless one is on its way. Who is longer than the gpu tier and waits
// for the transit or for blocks of the cpu tier is passed by prompts for the gpu tier, which take neither; in
// the second case by those of the next few requests alone, for they may be swapped out to where it waits for
// room.
class PrefillQueue {
 public:
  PrefillQueue() = default;  // nobody
  // max_rows: rows of the iteration that decodes leave. Takes blocks of the admitted from *books.
  PrefillQueue(const ScheduleState& state, const LayerCosts& costs, const AdmissionRules& rules,
               int64_t max_rows, TierBooks* books);

  int64_t num_tokens() const { return token_sums_.back(); }
  // Whether it holds whole prompts only, to their ends.
  bool ends_prompts() const {
    return items_.empty() || items_.back().start + items_.back().num_tokens == items_.back().end;
  }
  // Of prompts already begun; a smaller budget admits nobody.
  int64_t num_begun_tokens() const { return token_sums_[num_begun_]; }
  // Tokens up to the last chunk that stays in the gpu tier: a smaller budget also cuts those.
  int64_t num_tokens_to_last_gpu_chunk() const { return tokens_to_last_gpu_chunk_; }
  // A budget, or somewhat more: all that was computed of a prompt of the cpu tier is copied in with each of
  // its chunks, so none is cut shorter than what that hides. At most num_tokens().
  int64_t WithoutSliver(int64_t num_tokens, const LayerCosts& costs) const;
  double num_gpu_prompts() const { return static_cast<double>(num_gpu_prompts_); }
  double mean_prompt() const;  // of those that fit the gpu tier
  // Of a cohort that enters in transit; empty: none does.
  const std::vector<RowSpan>& entering_transit() const { return entering_transit_; }

  // The chunks of the first num_tokens tokens, and what those and the ones that enter in transit begin with
  // that is cached, into an empty plan.
  void Write(int64_t num_tokens, IterationPlan* plan) const;
  // Adds them to an otherwise empty prefill part of a load.
  void AddTo(int64_t num_tokens, const LayerCosts& costs, IterationLoad* load) const;

 private:
  struct Item {
    SequenceId id;
    int64_t start;
    int64_t num_tokens = 0;  // of the chunk at most
    int64_t end;             // of the prompt
    int64_t first_logits;
    Tier tier;
    bool only_cpu;  // it is longer than the gpu tier
    // Where the tokens before `start` are, of one that is admitted behind a cached prefix; they move if it is
    // another tier than its own.
    std::optional<Tier> attached = std::nullopt;
    RowSpan Span(int64_t num_taken) const { return RowSpan::Chunk(id, start, num_taken, first_logits, tier); }
  };
  // What is cached of a waiting sequence.
  struct Prefix {
    std::array<CachedPrefix, kNumTiers> in;  // by tier
    Tier tier = Tier::kGpu;                  // that has the longest; the gpu tier of equals
    const CachedPrefix& longest() const { return in[static_cast<size_t>(tier)]; }
    // Blocks of a tier that it takes from nobody there.
    int64_t num_shared(Tier where) const {
      const CachedPrefix& there = in[static_cast<size_t>(where)];
      return there.num_blocks - there.num_unused;
    }
  };

  static Prefix FindPrefix(const ScheduleState& state, const ScheduledSequence& waiting,
                           const TierBooks& books);
  void AddBegun(const ScheduleState& state, const LayerCosts& costs, const TierBooks& books);
  void AddWaiting(const ScheduleState& state, const LayerCosts& costs, const AdmissionRules& rules,
                  TierBooks* books);
  // False if a limit leaves it no token.
  bool Add(const Item& prompt, const ScheduleState& state, const LayerCosts& costs, int64_t block_size);
  // The same for a cohort that enters in transit.
  bool AddInTransit(const Item& prompt, int64_t most_tokens, const LayerCosts& costs);
  bool TakesSeveralIterations(const Item& prompt, const LayerCosts& costs) const {
    return prompt.tier == Tier::kCpu && transit_.TakesSeveralIterations(prompt.start, costs);
  }
  // Whether nothing but the transit keeps a prompt waiting.
  bool WaitsForTransit(const Item& prompt, const LayerCosts& costs, int64_t block_size) const {
    if (prompt.tier != Tier::kCpu) return false;
    return TransitRoom(prompt.start, block_size) <= 0 ||
           (transit_.in_flight != nullptr && TakesSeveralIterations(prompt, costs));
  }
  static void WritePrefix(const Item& item, IterationPlan* plan);
  // Tokens that may be appended to `start` in the cpu tier.
  int64_t TransitRoom(int64_t start, int64_t block_size) const {
    return transit_left_ / block_size * block_size - start;
  }
  void Sum(const LayerCosts& costs);
  // Items that so many tokens take whole.
  size_t NumWhole(int64_t num_tokens) const;

  int64_t rows_left_ = 0;
  int64_t transit_left_ = 0;
  TransitRules transit_;
  size_t num_begun_ = 0;
  std::vector<Item> items_;
  std::vector<Item> in_transit_;  // enter
  std::vector<RowSpan> entering_transit_;
  // Of the first i items.
  std::vector<int64_t> token_sums_{0};
  std::vector<int64_t> swapped_sums_{0};
  std::vector<int64_t> sampled_sums_{0};
  std::vector<double> attention_sums_{0.0};
  int64_t tokens_to_last_gpu_chunk_ = 0;
  int64_t num_gpu_prompts_ = 0;
};

}  // namespace tandem
