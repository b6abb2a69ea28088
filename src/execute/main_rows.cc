#include "execute/main_rows.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/round_up.h"

namespace tandem {
namespace {

// Adds spans one after the other.
class RowLayout {
 public:
  RowLayout(IterationInput* input, int64_t block_size, KvTransit* transit, MainRows* rows)
      : spans_(input->plan.main.spans),
        inputs_(input->main),
        block_size_(block_size),
        transit_(transit),
        rows_(rows) {
    TANDEM_CHECK(spans_.size() == inputs_.size(), "{} spans with the inputs of {}", spans_.size(),
                 inputs_.size());
    const auto num_rows = static_cast<size_t>(input->plan.main.num_rows());
    for (std::vector<int32_t>* values : {&rows_->token_ids, &rows_->positions, &rows_->slots})
      values->reserve(num_rows);
    rows_->span_order.reserve(spans_.size());
    rows_->gpu_attention.sequences.reserve(spans_.size());
    rows_->logits.row_indices.reserve(spans_.size());
    rows_->logits.sample_rows.reserve(spans_.size());
  }

  void AddKind(RowKind kind) {
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (RowKindOf(spans_[i]) != kind) continue;
      rows_->span_order.push_back(i);
      AddSpan(kind, spans_[i], &inputs_[i]);
    }
  }

 private:
  void AddSpan(RowKind kind, const RowSpan& span, SpanInput* input) {
    rows_->logits.AddSpan(static_cast<int32_t>(rows_->num_rows()), span, *input);
    if (kind == RowKind::kCpu) {
      AddTokens(span, *input, {});
      rows_->cpu_sequences.push_back(AttendedSequence(span, input));
      return;
    }
    const auto num_blocks = static_cast<size_t>(DivideUp(span.end(), block_size_));
    TANDEM_CHECK(input->block_table.size() >= num_blocks, "sequence {}: {} blocks for {} tokens",
                 span.sequence, input->block_table.size(), span.end());
    std::vector<int32_t> blocks = std::move(input->block_table);
    blocks.resize(num_blocks);
    if (kind == RowKind::kTransit) blocks = transit_->Add(span, std::move(blocks));
    AttentionBatch& attention = kind == RowKind::kTransit ? rows_->transit_attention : rows_->gpu_attention;
    const int64_t row_begin = rows_->num_rows() - (kind == RowKind::kTransit ? rows_->transit_begin() : 0);
    AddTokens(span, *input, blocks);
    attention.sequences.push_back({.row_begin = row_begin,
                                   .num_rows = span.num_tokens,
                                   .context_len = span.end(),
                                   .block_table = std::move(blocks)});
  }

  // blocks: empty: appended elsewhere.
  void AddTokens(const RowSpan& span, const SpanInput& input, std::span<const int32_t> blocks) {
    TANDEM_CHECK(static_cast<int64_t>(input.token_ids.size()) == span.num_tokens,
                 "sequence {}: {} rows with {} tokens", span.sequence, span.num_tokens,
                 input.token_ids.size());
    for (int64_t i = 0; i < span.num_tokens; ++i) {
      const int64_t position = span.start + i;
      rows_->token_ids.push_back(input.token_ids[static_cast<size_t>(i)]);
      rows_->positions.push_back(static_cast<int32_t>(position));
      rows_->slots.push_back(
          blocks.empty()
              ? -1
              : static_cast<int32_t>(blocks[static_cast<size_t>(position / block_size_)] * block_size_ +
                                     position % block_size_));
    }
  }

  const std::vector<RowSpan>& spans_;
  std::vector<SpanInput>& inputs_;
  int64_t block_size_;
  KvTransit* transit_;
  MainRows* rows_;
};

// Rows that are computed for nothing, or by others, with values that harm nothing.
void FillUpTo(int64_t num_filled, MainRows* rows) {
  TANDEM_CHECK(rows->num_rows() <= num_filled, "{} rows where {} are laid out", rows->num_rows(), num_filled);
  const auto size = static_cast<size_t>(num_filled);
  rows->token_ids.resize(size, 0);
  rows->positions.resize(size, 0);
  rows->slots.resize(size, -1);
}

}  // namespace

RowKind RowKindOf(const RowSpan& span) {
  if (span.attention == Tier::kCpu) return RowKind::kCpu;
  if (span.in_transit()) return RowKind::kTransit;
  return span.is_decode() ? RowKind::kGpuDecode : RowKind::kGpuSpan;
}

MainRows LayOutMainRows(IterationInput* input, int64_t block_size, KvTransit* transit, int64_t num_filled) {
  MainRows rows;
  RowLayout layout(input, block_size, transit, &rows);
  layout.AddKind(RowKind::kGpuSpan);
  layout.AddKind(RowKind::kGpuDecode);
  rows.num_gpu_rows = rows.num_rows();
  rows.gpu_attention.num_rows = rows.num_gpu_rows;
  layout.AddKind(RowKind::kTransit);
  rows.num_transit_rows = rows.num_rows() - rows.num_gpu_rows;
  rows.transit_attention.num_rows = rows.num_transit_rows;
  layout.AddKind(RowKind::kCpu);
  rows.num_cpu_rows = rows.num_rows() - rows.cpu_begin();
  FillUpTo(std::max(num_filled, rows.num_rows()), &rows);
  rows.rider_begin = rows.num_rows();
  rows.first_rider_result = rows.logits.sample_rows.size();
  return rows;
}

void AddRiderRows(const IterationInput& input, std::span<const Rider> riders, int64_t num_layers,
                  int64_t num_rider_rows, MainRows* rows) {
  // Riders of other boundaries than the first find positions where GatherRiders leaves them.
  auto leaving = static_cast<int32_t>(rows->rider_begin);
  for (const Rider& rider : riders) {
    const Cohort& cohort = *rider.cohort;
    const bool ends = cohort.ends_next(num_layers);
    if (cohort.cursor != kEntry && !ends) continue;
    const std::vector<SpanInput>& inputs = input.cohorts[rider.step];
    TANDEM_CHECK(inputs.size() == cohort.rows.size(), "a cohort of {} rows rides with the inputs of {}",
                 cohort.rows.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (ends) {
        rows->logits.AddSpan(leaving++, cohort.rows[i], inputs[i]);
        continue;
      }
      rows->token_ids.push_back(inputs[i].token_ids.front());
      rows->positions.push_back(static_cast<int32_t>(cohort.rows[i].start));
      rows->slots.push_back(-1);
    }
  }
  rows->num_rider_rows = num_rider_rows;
  FillUpTo(rows->rider_begin + num_rider_rows, rows);
}

void FindTokensToCome(const IterationPlan& plan_before, const MainRows& before, IterationInput* input) {
  std::unordered_map<SequenceId, int32_t> last_results;
  last_results.reserve(before.span_order.size());
  int64_t num_results = 0;
  for (const size_t i : before.span_order) {
    const RowSpan& span = plan_before.main.spans[i];
    num_results += span.num_sampled();
    if (span.num_sampled() > 0) last_results.emplace(span.sequence, static_cast<int32_t>(num_results - 1));
  }
  for (size_t i = 0; i < input->main.size(); ++i) {
    for (int32_t& token : input->main[i].token_ids) {
      if (token != kTokenToCome) continue;
      const SequenceId sequence = input->plan.main.spans[i].sequence;
      const auto found = last_results.find(sequence);
      TANDEM_CHECK(found != last_results.end(), "sequence {}: no token is to come", sequence);
      token = ~found->second;
    }
  }
}

SequenceResult TakeResult(const RowSpan& span, size_t num_given, std::vector<SampledToken>::iterator* next) {
  SequenceResult result{.sequence = span.sequence, .num_computed = span.end()};
  const auto drawn = *next + static_cast<std::ptrdiff_t>(num_given);
  const auto end = *next + span.num_sampled();
  result.prompt_logprobs.assign(std::make_move_iterator(*next), std::make_move_iterator(drawn));
  result.tokens.assign(std::make_move_iterator(drawn), std::make_move_iterator(end));
  *next = end;
  return result;
}

void CollectResults(const IterationInput& input, bool cpu_failed, MainRows* rows,
                    std::vector<SequenceResult>* results) {
  results->reserve(results->size() + rows->span_order.size());
  auto next = rows->logits.results.begin();
  for (const size_t i : rows->span_order) {
    const RowSpan& span = input.plan.main.spans[i];
    results->push_back(TakeResult(span, input.main[i].given_tokens.size(), &next));
    results->back().failed = cpu_failed && RowKindOf(span) == RowKind::kCpu;
  }
}

}  // namespace tandem
