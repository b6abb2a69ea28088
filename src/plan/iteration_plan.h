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
#pragma once

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

// Consecutive tokens of one sequence whose K and V are computed together, on the device.
struct PrefillChunk {
  SequenceId sequence = 0;
  int64_t start = 0;       // position of the first token; equals the sequence's tokens in the cache
  int64_t num_tokens = 0;  // >= 1
  bool samples = false;    // the chunk ends the prompt: its last row gives a token
  // Where the sequence lives. kCpu: its KV passes through the device layer by layer (what is there already on
  // the way in, the chunk's on the way out) and takes no room in the gpu tier.
  Tier tier = Tier::kGpu;
  bool operator==(const PrefillChunk&) const = default;
};

// One token of a sequence whose earlier tokens are all in the cache of its tier.
struct DecodeRow {
  SequenceId sequence = 0;
  int64_t position = 0;
  bool operator==(const DecodeRow&) const = default;
};

struct MainSubBatch {
  std::vector<PrefillChunk> prefills;
  std::vector<DecodeRow> gpu_decodes;
  std::vector<DecodeRow> cpu_decodes;  // attention on the CPU, awaited at every layer (NEO's batch-0)
  bool empty() const { return prefills.empty() && gpu_decodes.empty() && cpu_decodes.empty(); }
  int64_t num_rows() const {
    int64_t rows = static_cast<int64_t>(gpu_decodes.size() + cpu_decodes.size());
    for (const PrefillChunk& chunk : prefills) rows += chunk.num_tokens;
    return rows;
  }
  bool operator==(const MainSubBatch&) const = default;
};

// A cohort enters at layer cursor kEntry and ends a token with a visit of layer L-1, after which its cursor
// is kEntry again.
inline constexpr int64_t kEntry = -1;

// Post-projection of `layer` and pre-projection of layer + 1 for a cohort's rows, done when the main
// sub-batch is at `boundary`. layer kEntry: embedding and pre-projection of layer 0. layer L-1:
// post-projection, logits, sampling.
struct Visit {
  int64_t boundary = 0;
  int64_t layer = 0;
  bool operator==(const Visit&) const = default;
};

// What a cohort does in this iteration. Its rows stay the same from the visit of kEntry to that of L-1.
struct CohortStep {
  CohortId cohort = 0;
  std::vector<DecodeRow> rows;
  int64_t cursor = kEntry;    // layer of its next visit when the iteration starts
  std::vector<Visit> visits;  // layers cursor, cursor + 1, ...; boundaries strictly ascending
  // Asynchronous overlap (APEX section 3.3): the one visit, of layer `cursor` at boundary `cursor`, is made
  // by rows that join those of the main sub-batch, if attention of the layer is done when the main sub-batch
  // gets there. Otherwise there is none in this iteration: nobody waits. False: the visits are made with
  // products of their own, and waited for.
  bool rides = false;
  bool operator==(const CohortStep&) const = default;
};

// A cohort between its visits of kEntry and L-1 when no iteration runs. A plan that does not name it leaves
// it where it is; its attention goes on.
struct InFlightCohort {
  CohortId cohort = 0;
  std::vector<DecodeRow> rows;
  int64_t cursor = 0;  // layer of its next visit
  bool operator==(const InFlightCohort&) const = default;
};

// The whole KV of a sequence moves to the other tier before anything else in the iteration touches it.
struct Move {
  SequenceId sequence = 0;
  Tier to = Tier::kGpu;
  bool operator==(const Move&) const = default;
};

struct IterationPlan {
  uint64_t iteration = 0;
  std::string_view strategy;  // name of the strategy that made it; static storage
  // In flight, lose the token that they are at: their rows are as before it. Before all that follows.
  std::vector<CohortId> dropped;
  std::vector<SequenceId> preempted;  // lose their KV and wait again; nothing that was generated is lost
  std::vector<Move> moves;
  MainSubBatch main;
  std::vector<CohortStep> cohorts;
  bool empty() const {
    return dropped.empty() && preempted.empty() && moves.empty() && main.empty() && cohorts.empty();
  }
};

}  // namespace tandem
