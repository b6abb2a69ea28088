#include "trial/attention_trial.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

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

// Decodes of one row a thread over KV of its own, in blocks of random order.
class AttentionRuns {
 public:
  static Result<AttentionRuns> Create(const AttentionUse& use, CpuAttention* workers, Device* device) {
    const KvShape shape = {.format = KvFormat::Plain(use.kv_dtype),
                           .block_size = use.block_size,
                           .num_kv_heads = use.span_heads,
                           .head_dim = use.head_dim};
    const auto token_bytes = static_cast<int64_t>(shape.BlockBytes()) / use.block_size;
    const int64_t num_tokens = RoundUp(kTrialRunBytes / token_bytes, kPartitionTokens);
    TANDEM_ASSIGN_OR_RETURN(
        TrialMemory memory, TrialMemory::Create(num_tokens * token_bytes, use.kv_dtype, workers, device));
    return AttentionRuns(use, shape, num_tokens, std::move(memory), workers);
  }

  double Seconds(CpuIsa isa, const AttentionFetch& fetch) {
    const AttentionKernels& kernels = AttentionKernelsFor(isa);
    memory_.Evict();
    return MeanThreadSeconds(workers_, [&](int thread) {
      std::vector<float>& floats = floats_[static_cast<size_t>(thread)];
      float* out = floats.data() + width();
      float* states = out + width();
      AttentionRows rows;
      rows.q = MatrixView::Dense(floats.data(), DType::kF32, 1, width());
      rows.out = MatrixView::Dense(out, DType::kF32, 1, width());
      rows.num_rows = 1;
      rows.group_size = use_.group_size;
      rows.first_position = num_tokens_ - 1;
      rows.scale = 0.1F;
      rows.block_table = block_table_.data();
      SetKv({memory_.part(thread), shape_, num_blocks(), 0, 0}, 0, use_.span_heads, &rows);
      rows.fetch = fetch;
      kernels.run(rows, 0, num_tokens_ / kPartitionTokens, states, states + states_size());
      kernels.finish(rows, states);
    });
  }

 private:
  AttentionRuns(const AttentionUse& use, const KvShape& shape, int64_t num_tokens, TrialMemory memory,
                CpuAttention* workers)
      : use_(use),
        shape_(shape),
        num_tokens_(num_tokens),
        memory_(std::move(memory)),
        workers_(workers),
        block_table_(static_cast<size_t>(num_blocks())) {
    std::iota(block_table_.begin(), block_table_.end(), 0);
    std::shuffle(block_table_.begin(), block_table_.end(), std::minstd_rand(7));
    const int64_t scratch = AttentionScratchSize(use.group_size, use.head_dim, use.span_heads);
    floats_.assign(static_cast<size_t>(workers->num_threads()),
                   std::vector<float>(static_cast<size_t>(2 * width() + states_size() + scratch), 0.5F));
  }

  int64_t num_blocks() const { return num_tokens_ / shape_.block_size; }
  int64_t width() const { return use_.span_heads * use_.group_size * use_.head_dim; }
  int64_t states_size() const {
    return use_.span_heads * AttentionStateSize(use_.group_size, use_.head_dim);
  }

  AttentionUse use_;
  KvShape shape_;
  int64_t num_tokens_;
  TrialMemory memory_;
  CpuAttention* workers_;
  std::vector<int32_t> block_table_;
  std::vector<std::vector<float>> floats_;  // of a thread: q, out, states, scratch
};

}  // namespace

Result<AttentionChoice> TryAttention(const AttentionUse& use, std::optional<CpuIsa> isa,
                                     CpuAttention* workers, Device* device) {
  TANDEM_ASSIGN_OR_RETURN(AttentionRuns runs, AttentionRuns::Create(use, workers, device));
  AttentionChoice choice;
  choice.isa = isa.value_or(choice.isa);
  const TrialOutcome fetch = RunTrial(
      kAttentionFetches.size(), [&](size_t i) { return runs.Seconds(choice.isa, kAttentionFetches.at(i)); }, {});
  choice.fetch = kAttentionFetches.at(fetch.chosen);
  choice.speedup = fetch.speedup;
  if (isa || !use.any_isa) return choice;
  std::vector<CpuIsa> isas = {choice.isa};
  for (const CpuIsa other : SupportedCpuIsas()) {
    if (other != choice.isa && other != CpuIsa::kPortable) isas.push_back(other);
  }
  const TrialOutcome set =
      RunTrial(isas.size(), [&](size_t i) { return runs.Seconds(isas[i], choice.fetch); }, {});
  choice.isa = isas[set.chosen];
  choice.speedup *= set.speedup;
  return choice;
}

}  // namespace tandem
