#include "trial/attention_trial.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/kv_layout.h"
#include "base/matrix_view.h"
#include "base/round_up.h"
#include "cpu_attention/attention_kernels.h"
#include "trial/rounds.h"
#include "trial/trial_memory.h"

namespace tandem {
namespace {

// The first is the default. Every second line non-temporally is left out: nowhere was it near the others.
constexpr std::array<AttentionFetch, 8> kAttentionFetches = {{
    {.level = FetchLevel::kL2},
    {.level = FetchLevel::kL1},
    {.level = FetchLevel::kNonTemporal},
    {.level = FetchLevel::kL2, .half_piece_ahead = true},
    {.level = FetchLevel::kL1, .half_piece_ahead = true},
    {.level = FetchLevel::kNonTemporal, .half_piece_ahead = true},
    {.level = FetchLevel::kL2, .every_second_line = true},
    {.level = FetchLevel::kL1, .every_second_line = true},
}};

// The first is the default.
constexpr std::array<int64_t, 4> kReaders = {kRowsPerGroup, 4, 2, 1};

// Decodes of one row a thread over KV of its own, in blocks of random order.
class AttentionRuns {
 public:
  static Result<AttentionRuns> Create(const AttentionUse& use, CpuAttention* workers, Device* device) {
    const KvShape shape = {.format = KvFormat::Of(use.kv_dtype),
                           .block_size = use.block_size,
                           .num_kv_heads = use.span_heads,
                           .head_dim = use.head_dim};
    const auto token_bytes = static_cast<int64_t>(shape.TokenBytes());
    const int64_t num_tokens = RoundUp(kTrialRunBytes / token_bytes, kPartitionTokens);
    TANDEM_ASSIGN_OR_RETURN(TrialMemory memory,
                            TrialMemory::Create(num_tokens * token_bytes, use.kv_dtype, workers, device));
    return AttentionRuns(use, shape, num_tokens, std::move(memory));
  }

  // Of each of the choices.
  std::vector<double> Seconds(const std::vector<AttentionChoice>& choices) {
    return memory_.RunRound(choices.size(), [&](size_t run, int thread, const std::byte* kv) {
      float* floats = floats_[static_cast<size_t>(thread)].data();
      float* out = floats + width();
      float* states = out + width();
      AttentionRows rows = RowsOf(choices[run], kv);
      rows.q = MatrixView::Dense(floats, DType::kF32, 1, width());
      rows.out = MatrixView::Dense(out, DType::kF32, 1, width());
      rows.num_rows = 1;
      const AttentionKernels& kernels = AttentionKernelsFor(choices[run].isa);
      kernels.run(rows, 0, num_partitions(), states, states + states_size());
      kernels.finish(rows, states);
    });
  }

  // Of kRowsPerGroup rows over the same KV, for each of the choices with its most_readers. Who reads it after
  // others have finds it in the caches, as rows of a batch do.
  std::vector<double> SharingSeconds(const std::vector<AttentionChoice>& choices) {
    return memory_.RunRound(choices.size(), [&](size_t run, int thread, const std::byte* kv) {
      float* floats = floats_[static_cast<size_t>(thread)].data();
      float* const first_state = floats + kRowsPerGroup * width();
      float* const scratch = first_state + kRowsPerGroup * num_partitions() * states_size();
      AttentionRows rows = RowsOf(choices[run], kv);
      rows.q = MatrixView::Dense(floats, DType::kF32, kRowsPerGroup, width());
      rows.position_step = 0;
      rows.num_rows = choices[run].most_readers;
      for (int64_t row = 0; row < kRowsPerGroup; row += rows.num_rows) {
        std::array<float*, kRowsPerGroup> states = {};
        for (int64_t i = 0; i < rows.num_rows; ++i)
          states[static_cast<size_t>(i)] = first_state + (row + i) * num_partitions() * states_size();
        rows.row_numbers = kRowNumbers.data() + row;
        AttentionKernelsFor(choices[run].isa)
            .run_apart(rows, 0, num_partitions(), states.data(), states_size(), scratch);
      }
    });
  }

 private:
  AttentionRuns(const AttentionUse& use, const KvShape& shape, int64_t num_tokens, TrialMemory memory)
      : use_(use),
        shape_(shape),
        num_tokens_(num_tokens),
        memory_(std::move(memory)),
        block_table_(static_cast<size_t>(num_blocks())) {
    std::iota(block_table_.begin(), block_table_.end(), 0);
    std::shuffle(block_table_.begin(), block_table_.end(), std::minstd_rand(7));
    const int64_t scratch =
        AttentionScratchSize(kRowsPerGroup * use.group_size, use.head_dim, use.span_heads);
    const int64_t num_floats = kRowsPerGroup * (width() + num_partitions() * states_size()) + scratch;
    floats_.assign(static_cast<size_t>(use.num_threads),
                   std::vector<float>(static_cast<size_t>(num_floats), 0.5F));
  }

  // All but the rows themselves.
  AttentionRows RowsOf(const AttentionChoice& choice, const std::byte* kv) const {
    AttentionRows rows;
    rows.group_size = use_.group_size;
    rows.first_position = num_tokens_ - 1;
    rows.scale = 0.1F;
    rows.block_table = block_table_.data();
    SetKv({const_cast<std::byte*>(kv), shape_, num_blocks(), 0, 0}, 0, use_.span_heads, &rows);
    rows.fetch = choice.fetch;
    return rows;
  }

  int64_t num_blocks() const { return num_tokens_ / shape_.block_size; }
  int64_t num_partitions() const { return num_tokens_ / kPartitionTokens; }
  int64_t width() const { return use_.span_heads * use_.group_size * use_.head_dim; }
  int64_t states_size() const { return use_.span_heads * AttentionStateSize(use_.group_size, use_.head_dim); }

  static constexpr std::array<int32_t, kRowsPerGroup> kRowNumbers = {0, 1, 2, 3, 4, 5, 6, 7};

  AttentionUse use_;
  KvShape shape_;
  int64_t num_tokens_;
  TrialMemory memory_;
  std::vector<int32_t> block_table_;
  std::vector<std::vector<float>> floats_;  // of a thread: q, out, states, scratch
};

// seconds: of each of the choices that it is given.
template <typename Seconds>
TrialOutcome Fastest(const std::vector<AttentionChoice>& choices, const TrialRounds& rounds,
                     const Seconds& seconds) {
  return RunTrial(
      choices.size(),
      [&](const std::vector<size_t>& candidates) {
        std::vector<AttentionChoice> round;
        round.reserve(candidates.size());
        for (const size_t candidate : candidates) round.push_back(choices[candidate]);
        return seconds(round);
      },
      rounds);
}

// What rows share is read at once for as many of them as is fastest.
int64_t FastestReaders(const AttentionChoice& choice, AttentionRuns* runs) {
  std::vector<AttentionChoice> choices(kReaders.size(), choice);
  for (size_t i = 0; i < kReaders.size(); ++i) choices[i].most_readers = kReaders[i];
  const TrialOutcome outcome =
      Fastest(choices, {}, [&](const auto& round) { return runs->SharingSeconds(round); });
  return kReaders[outcome.chosen];
}

}  // namespace

Result<int64_t> TryReaders(const AttentionUse& use, const AttentionChoice& choice, CpuAttention* workers,
                           Device* device) {
  TANDEM_ASSIGN_OR_RETURN(AttentionRuns runs, AttentionRuns::Create(use, workers, device));
  return FastestReaders(choice, &runs);
}

Result<AttentionChoice> TryAttention(const AttentionUse& use, std::optional<CpuIsa> isa,
                                     CpuAttention* workers, Device* device) {
  TANDEM_CHECK(workers->num_threads() == use.num_threads, "trial for {} threads on {}", use.num_threads,
               workers->num_threads());
  TANDEM_ASSIGN_OR_RETURN(AttentionRuns runs, AttentionRuns::Create(use, workers, device));
  const auto fastest = [&](const std::vector<AttentionChoice>& choices, const TrialRounds& rounds) {
    const TrialOutcome outcome =
        Fastest(choices, rounds, [&](const auto& round) { return runs.Seconds(round); });
    AttentionChoice choice = choices[outcome.chosen];
    choice.speedup *= outcome.speedup;
    return choice;
  };
  std::vector<AttentionChoice> choices;
  choices.reserve(kAttentionFetches.size());
  for (const AttentionFetch& fetch : kAttentionFetches)
    choices.push_back({.isa = isa.value_or(BestCpuIsa()), .fetch = fetch});
  AttentionChoice choice = fastest(choices, {});
  if (isa || !use.any_isa) {
    choice.most_readers = FastestReaders(choice, &runs);
    return choice;
  }
  choices = {choice};
  for (const CpuIsa other : SupportedCpuIsas()) {
    if (other == choice.isa || other == CpuIsa::kPortable) continue;
    choices.push_back(choice);
    choices.back().isa = other;
  }
  // Another set gives other bits: not for little.
  constexpr double kWorthOtherBits = 1.05;
  choice = fastest(choices, {.clearly_faster = kWorthOtherBits});
  choice.most_readers = FastestReaders(choice, &runs);
  return choice;
}

}  // namespace tandem
