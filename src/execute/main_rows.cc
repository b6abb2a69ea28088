#include "execute/main_rows.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "execute/cpu_rows.h"

namespace tandem {
namespace {

class RowLayout {
 public:
  RowLayout(const KvBooks& books, const FindRequest& find_request, KvTransit* transit, MainRows* rows)
      : books_(books), find_request_(find_request), transit_(transit), rows_(rows) {}

  void AddGpuRows(const MainSubBatch& main) {
    for (const PrefillChunk& chunk : main.prefills) {
      if (chunk.tier != Tier::kGpu) continue;
      const int64_t end = chunk.start + chunk.num_tokens;
      rows_->gpu_attention.sequences.push_back({.row_begin = num_rows(),
                                                .num_rows = chunk.num_tokens,
                                                .context_len = end,
                                                .block_table = BlocksOf(books_, {chunk.sequence, end - 1})});
      AddChunk(chunk, [&](int64_t position) { return books_.SlotToWrite(chunk.sequence, position); });
    }
    for (const DecodeRow& decode : main.gpu_decodes) {
      rows_->gpu_attention.sequences.push_back({.row_begin = num_rows(),
                                                .num_rows = 1,
                                                .context_len = decode.position + 1,
                                                .block_table = BlocksOf(books_, decode)});
      AddDecode(decode, books_.SlotToWrite(decode.sequence, decode.position));
    }
    rows_->num_gpu_rows = num_rows();
    rows_->gpu_attention.num_rows = num_rows();
  }

  void AddTransitRows(const MainSubBatch& main) {
    for (const PrefillChunk& chunk : main.prefills) {
      if (chunk.tier != Tier::kCpu) continue;
      const std::vector<int32_t>& blocks = transit_->Add(chunk);
      rows_->transit_attention.sequences.push_back({.row_begin = num_rows() - rows_->transit_begin(),
                                                    .num_rows = chunk.num_tokens,
                                                    .context_len = chunk.start + chunk.num_tokens,
                                                    .block_table = blocks});
      const int64_t block_size = books_.block_size();
      AddChunk(chunk, [&](int64_t position) {
        return static_cast<int32_t>(blocks[static_cast<size_t>(position / block_size)] * block_size +
                                    position % block_size);
      });
    }
    rows_->num_transit_rows = num_rows() - rows_->num_gpu_rows;
    rows_->transit_attention.num_rows = rows_->num_transit_rows;
  }

  void AddCpuRows(const MainSubBatch& main) {
    for (const DecodeRow& decode : main.cpu_decodes) AddDecode(decode, -1);
    rows_->num_cpu_rows = static_cast<int64_t>(main.cpu_decodes.size());
  }

  // Those of the first boundary bring their inputs, those of the last one are sampled. All other riders find
  // positions where GatherRiders leaves them.
  void AddRiders(const Riding& riding) {
    const int64_t last_boundary = riding.last_boundary();
    rows_->first_rider_result = rows_->logits.sample_rows.size();
    auto leaving = static_cast<int32_t>(num_rows());
    for (const Rider& rider : riding.riders()) {
      const Cohort& cohort = *rider.cohort;
      if (cohort.cursor != kEntry && cohort.cursor != last_boundary) continue;
      for (const DecodeRow& row : cohort.rows) {
        const Request& request = find_request_(row.sequence);
        if (cohort.cursor == kEntry) AddRow(request, row.position, -1);
        if (cohort.cursor == last_boundary) rows_->logits.AddSample(leaving++, request);
      }
    }
  }

  // Rows that are computed for nothing, or by others, with values that harm nothing.
  void FillUpTo(int64_t num_filled) {
    TANDEM_CHECK(num_rows() <= num_filled, "{} rows where {} are laid out", num_rows(), num_filled);
    const auto size = static_cast<size_t>(num_filled);
    token_ids.resize(size, 0);
    positions.resize(size, 0);
    slots.resize(size, -1);
  }

  int64_t num_rows() const { return static_cast<int64_t>(token_ids.size()); }

  std::vector<int32_t> token_ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> slots;

 private:
  int32_t AddRow(const Request& request, int64_t position, int32_t slot) {
    token_ids.push_back(request.TokenAt(position));
    positions.push_back(static_cast<int32_t>(position));
    slots.push_back(slot);
    return static_cast<int32_t>(num_rows() - 1);
  }

  void AddDecode(const DecodeRow& decode, int32_t slot) {
    const Request& request = find_request_(decode.sequence);
    rows_->logits.AddSample(AddRow(request, decode.position, slot), request);
  }

  template <typename SlotOf>
  void AddChunk(const PrefillChunk& chunk, const SlotOf& slot_of) {
    const Request& request = find_request_(chunk.sequence);
    const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
    for (int64_t position = chunk.start; position < chunk.start + chunk.num_tokens; ++position) {
      const int32_t row = AddRow(request, position, slot_of(position));
      const bool wants_logprob = request.sampling.num_prompt_top_logprobs >= 0 && position + 1 < prompt_len &&
                                 position >= request.num_reported_prompt_logprobs;
      if (wants_logprob) rows_->logits.AddPromptLogprob(row, request, position + 1);
    }
    if (chunk.samples) rows_->logits.AddSample(static_cast<int32_t>(num_rows() - 1), request);
  }

  const KvBooks& books_;
  const FindRequest& find_request_;
  KvTransit* transit_;
  MainRows* rows_;
};

}  // namespace

MainRows PrepareMainRows(const MainSubBatch& main, const GraphShape& graph, const KvBooks& books,
                         const FindRequest& find_request, const RowBuffers& buffers, IntInputs* inputs,
                         KvTransit* transit, const Riding* riding) {
  MainRows rows;
  rows.graph = graph;
  RowLayout layout(books, find_request, transit, &rows);
  layout.AddGpuRows(main);
  layout.AddTransitRows(main);
  layout.AddCpuRows(main);
  if (!graph.empty()) layout.FillUpTo(graph.num_rows);
  rows.rider_begin = layout.num_rows();
  rows.first_rider_result = rows.logits.sample_rows.size();
  if (riding != nullptr && !riding->riders().empty()) {
    layout.AddRiders(*riding);
    rows.num_rider_rows = graph.empty() ? riding->MostRows() : graph.num_rider_rows;
    layout.FillUpTo(rows.rider_begin + rows.num_rider_rows);
  }
  inputs->Clear();
  rows.batch = std::make_unique<RowBatch>(buffers, static_cast<int64_t>(layout.token_ids.size()));
  rows.batch->token_ids = inputs->Add(layout.token_ids);
  rows.positions = inputs->Add(layout.positions);
  rows.batch->positions = rows.positions;
  rows.batch->slots = inputs->Add(layout.slots);
  return rows;
}

void CollectResults(const MainSubBatch& main, const FindRequest& find_request, MainRows* rows,
                    std::vector<SequenceResult>* results) {
  auto next_sampled = rows->logits.results.begin();
  const auto add_chunks = [&](Tier tier) {
    for (const PrefillChunk& chunk : main.prefills) {
      if (chunk.tier != tier) continue;
      SequenceResult& result = results->emplace_back();
      result.sequence = chunk.sequence;
      result.num_computed = chunk.start + chunk.num_tokens;
      const Request& request = find_request(chunk.sequence);
      const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
      if (request.sampling.num_prompt_top_logprobs >= 0) {
        const int64_t begin = std::max(chunk.start, request.num_reported_prompt_logprobs);
        const int64_t end = std::min(result.num_computed, prompt_len - 1);
        for (int64_t position = begin; position < end; ++position)
          result.prompt_logprobs.push_back(std::move(*next_sampled++));
      }
      if (chunk.samples) result.token = std::move(*next_sampled++);
    }
  };
  const auto add_decodes = [&](const std::vector<DecodeRow>& decodes) {
    for (const DecodeRow& row : decodes) {
      results->push_back(
          {.sequence = row.sequence, .num_computed = row.position + 1, .token = std::move(*next_sampled++)});
    }
  };
  add_chunks(Tier::kGpu);
  add_decodes(main.gpu_decodes);
  add_chunks(Tier::kCpu);
  add_decodes(main.cpu_decodes);
}

}  // namespace tandem
