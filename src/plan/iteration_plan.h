// The iteration plan: plain data that says what the next iteration does. Strategies make it, the executor
// obeys it, the simulated executor prices it. (NEO section 3; the space of strategies in
// docs/architecture.md.)
//
//   boundary        -1        0         1               L-1
//   main        embed,pre0 | post0,pre1 | post1,pre2 ... | postL-1, logits
//   attention            0 ^          1 ^                           (between two boundaries)
//
// The main sub-batch passes boundaries -1 .. L-1 in order. A cohort visits at boundaries the plan names; its
// own layer cursor need not equal the main sub-batch's. Riding (APEX), it makes one visit an iteration:
//
//   iteration      i                   i + 1                i + 2
//   boundary   -1  0  1 ...        -1  0  1 ...         -1  0  1 ...
//   rider       *                      *                       *
//   CPU          |--- attention 0 ---| |---- attention 1 ----|
//
// A cohort is of decodes of the cpu tier, or in transit: of chunks of long prompts that live there, each
// layer of which brings in all that was computed before. Then a visit is a whole layer, attention included,
// and the chunks take as many iterations as the plans want for the copies to hide.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

using SequenceId = uint64_t;
using CohortId = uint32_t;

// Where a request's KV cache lives. Never to be mixed with the backends cuda / host.
enum class Tier : uint8_t { kGpu, kCpu };
inline constexpr int kNumTiers = 2;
constexpr std::string_view TierName(Tier tier) {
  return tier == Tier::kGpu ? "gpu" : "cpu";
}
constexpr Tier OtherTier(Tier tier) {
  return tier == Tier::kGpu ? Tier::kCpu : Tier::kGpu;
}

// Consecutive tokens of one sequence that pass the layers together. All spans of a plan are in this form:
//
//                        num_tokens  sampled_from   tier   attention
//   decode                        1             0    its   the tier
//   draft of k tokens         k + 1             0    its   the tier
//   chunk of a prompt             n             n    its   gpu (the cpu tier's through the transit)
//   last chunk of a prompt        n         n - 1    its   gpu
//   chunk with echo               n   first asked    its   gpu
struct RowSpan {
  SequenceId sequence = 0;
  int64_t start = 0;         // position of the first token; equals the sequence's tokens in the cache
  int64_t num_tokens = 1;    // >= 1
  int64_t sampled_from = 0;  // rows of the span from here on give logits; num_tokens: none
  Tier tier = Tier::kGpu;    // where its KV lives
  // kGpu for a sequence of the cpu tier: its KV passes through the device layer by layer (what is there
  // already on the way in, the span's on the way out) and takes no room in the gpu tier.
  Tier attention = Tier::kGpu;
  // Of a decode attended in the cpu tier: the first num_shared tokens of its context, in whole partitions of
  // CPU attention, lie in the same blocks as those of another row of this beginning. Nothing but costs asks.
  uint64_t beginning = 0;  // 0: of no other row
  int64_t num_shared = 0;

  static constexpr RowSpan Decode(SequenceId sequence, int64_t position, Tier tier) {
    return {.sequence = sequence, .start = position, .tier = tier, .attention = tier};
  }
  // first_logits: position of the first row of the sequence that is to give logits.
  static constexpr RowSpan Chunk(SequenceId sequence, int64_t start, int64_t num_tokens, int64_t first_logits,
                                 Tier tier) {
    return {.sequence = sequence,
            .start = start,
            .num_tokens = num_tokens,
            .sampled_from = std::clamp<int64_t>(first_logits - start, 0, num_tokens),
            .tier = tier};
  }

  constexpr int64_t end() const { return start + num_tokens; }
  constexpr int64_t num_sampled() const { return num_tokens - sampled_from; }
  // One row on top of what is in the cache, attended where it lies. A prompt of one token is a chunk: there
  // is nothing in the cache.
  constexpr bool is_decode() const {
    return num_tokens == 1 && sampled_from == 0 && start > 0 && attention == tier;
  }
  constexpr bool in_transit() const { return attention != tier; }
  bool operator==(const RowSpan&) const = default;
};

// Tokens that the rows of a span read, itself included: a row at position p reads p + 1.
constexpr int64_t KvTokensOf(const RowSpan& span) {
  return span.num_tokens * (span.start + span.end() + 1) / 2;
}
int64_t KvTokensOf(const std::vector<RowSpan>& spans);
int64_t NumRowsOf(const std::vector<RowSpan>& spans);
// Of a cohort: chunks of prompts, not decodes.
constexpr bool AreInTransit(const std::vector<RowSpan>& rows) {
  return !rows.empty() && rows.front().in_transit();
}

// Rows that pass all layers together. Prompts in the order in which they are admitted, then decodes; the
// executor puts rows of a kind together.
struct MainSubBatch {
  std::vector<RowSpan> spans;
  bool empty() const { return spans.empty(); }
  int64_t num_rows() const { return NumRowsOf(spans); }
  // Awaited at every layer (NEO's batch-0).
  bool attends_on_cpu() const;
  bool operator==(const MainSubBatch&) const = default;
};

// A cohort enters at layer cursor kEntry and ends a token with a visit of layer L-1, after which its cursor
// is kEntry again.
inline constexpr int64_t kEntry = -1;

// Post-projection of `layer` and pre-projection of layer + 1 for a cohort's rows, done when the main
// sub-batch is at `boundary`. layer kEntry: embedding and pre-projection of layer 0. layer L-1:
// post-projection, logits, sampling. Of a cohort in transit all of `layer`, from pre-projection to
// post-projection; kEntry: the embedding.
struct Visit {
  int64_t boundary = 0;
  int64_t layer = 0;
  bool operator==(const Visit&) const = default;
};

// What a cohort does in this iteration. Its rows stay the same from the visit of kEntry to that of L-1.
struct CohortStep {
  CohortId cohort = 0;
  std::vector<RowSpan> rows;  // of the cpu tier: decodes attended there, or chunks in transit
  int64_t cursor = kEntry;    // layer of its next visit when the iteration starts
  std::vector<Visit> visits;  // layers cursor, cursor + 1, ...; boundaries strictly ascending
  // Asynchronous overlap (APEX section 3.3): the one visit, of layer `cursor` at boundary `cursor`, is made
  // by rows that join those of the main sub-batch, if attention of the layer is done when the main sub-batch
  // gets there. Otherwise there is none in this iteration: nobody waits. False: the visits are made with
  // products of their own, and waited for.
  bool rides = false;
  bool in_transit() const { return AreInTransit(rows); }
  bool operator==(const CohortStep&) const = default;
};

// A cohort between its visits of kEntry and L-1 when no iteration runs. A plan that does not name it leaves
// it where it is; attention of decodes goes on. At most one is in transit.
struct InFlightCohort {
  CohortId cohort = 0;
  std::vector<RowSpan> rows;
  int64_t cursor = 0;  // layer of its next visit
  bool in_transit() const { return AreInTransit(rows); }
  bool operator==(const InFlightCohort&) const = default;
};

// A waiting sequence begins with tokens whose KV lies in a tier already. It lives there, unless the plan
// moves it, and its first span starts behind them.
struct AttachedPrefix {
  SequenceId sequence = 0;
  Tier tier = Tier::kGpu;
  int64_t num_tokens = 0;  // in whole blocks
  bool operator==(const AttachedPrefix&) const = default;
};

// Why a sequence loses its KV: somebody needs room that there is not.
enum class PreemptionReason : uint8_t {
  kGpuTierFull,      // in the gpu tier, and nothing in it can go elsewhere: prompts that are begun cannot
  kCpuTierFull,      // likewise in the cpu tier
  kBothTiersFull,    // in one tier, and the other has no room for what could go there
  kCpuTierUnusable,  // CPU attention does not answer
};
inline constexpr std::array kPreemptionReasons = {
    PreemptionReason::kGpuTierFull, PreemptionReason::kCpuTierFull, PreemptionReason::kBothTiersFull,
    PreemptionReason::kCpuTierUnusable};
// As metrics, logs and printed plans have it: gpu_tier_full, ...
std::string_view PreemptionReasonName(PreemptionReason reason);

struct Preemption {
  SequenceId sequence = 0;
  PreemptionReason reason = PreemptionReason::kGpuTierFull;
  bool operator==(const Preemption&) const = default;
};

// The whole KV of a sequence moves to the other tier before anything else in the iteration touches it.
struct Move {
  SequenceId sequence = 0;
  Tier to = Tier::kGpu;
  bool operator==(const Move&) const = default;
};

// Blocks of the gpu tier that nobody uses are copied to the cpu tier before their room is wanted, the one
// used longest ago first.
struct CopyDown {
  int64_t margin = 0;      // until so many blocks are free or have been copied
  int64_t max_blocks = 0;  // in this iteration
  // Of what begins alike, one in so many is copied, always the same ones; the others are given up.
  int64_t one_in = 1;
  bool operator==(const CopyDown&) const = default;
};

// What the strategy goes by, and what it expects of that while the work goes on as it is and the tiers are as
// full as they can be of the requests that are here. Nobody executes it: it is for whoever compares it with
// what becomes of it.
struct SteadyPromise {
  std::string_view strategy;  // the one that is played, of those that a strategy chooses from; static storage
  double tokens_per_s = 0;    // decoded ones; 0: nothing is predicted
  bool operator==(const SteadyPromise&) const = default;
};

struct IterationPlan {
  uint64_t iteration = 0;
  std::string_view strategy;  // name of the strategy that made it; static storage
  SteadyPromise promise;
  // In flight, lose the token that they are at: their rows are as before it. Before all that follows.
  std::vector<CohortId> dropped;
  std::vector<AttachedPrefix> attached;  // before any block is given to anybody
  std::vector<Preemption> preempted;     // lose their KV and wait again; nothing that was generated is lost
  std::vector<Move> moves;
  CopyDown copy_down;  // after all blocks have been given out; no work by itself
  MainSubBatch main;
  std::vector<CohortStep> cohorts;
  bool empty() const {
    return dropped.empty() && attached.empty() && preempted.empty() && moves.empty() && main.empty() &&
           cohorts.empty();
  }
  // Prefills and decodes of the gpu tier, and nothing else: all on the compute stream.
  bool gpu_rows_only() const;
};

}  // namespace tandem
