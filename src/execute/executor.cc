#include "execute/executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

int64_t LogitsSliceRows(const ExecutorOptions& options) {
  int64_t rows = options.logits_slice_rows;
  for (const int64_t size : options.graph_batch_sizes) rows = std::max(rows, size);
  return rows;
}

}  // namespace

// The main sub-batch of one iteration. Rows: prefill chunks, gpu decodes, then cpu decodes.
struct Executor::MainState {
  std::unique_ptr<RowBatch> batch;
  int64_t num_gpu_rows = 0;
  int64_t num_cpu_rows = 0;
  int64_t graph_size = 0;  // 0: op by op
  std::unique_ptr<DecodePlan> cpu_plan;
  LogitsWork logits;
};

struct Executor::Running {
  IterationPlan plan;
  FindRequest find_request;
  MainState main;
  std::unordered_map<CohortId, LogitsWork> cohort_logits;
};

Executor::Executor(Device* device, Ops* ops, const Decoder* decoder, TieredCache* cache)
    : device_(device),
      ops_(ops),
      decoder_(decoder),
      cache_(cache),
      main_ready_(device->CreateFlag()),
      main_done_(device->CreateFlag()),
      moved_(device->CreateEvent()),
      compute_stream_(device->CreateStream(StreamKind::kCompute, "compute")),
      copy_stream_(device->CreateStream(StreamKind::kCopy, "copy")) {}

Executor::~Executor() {
  compute_stream_->Synchronize();
  if (cpu_attention_) cpu_attention_->WaitIdle();
  copy_stream_->Synchronize();
}

Result<std::unique_ptr<Executor>> Executor::Create(Device* device, Ops* ops, const Decoder* decoder,
                                                   TieredCache* cache, const ExecutorOptions& options) {
  auto executor = std::unique_ptr<Executor>(new Executor(device, ops, decoder, cache));
  const ModelConfig& config = decoder->config();
  TANDEM_ASSIGN_OR_RETURN(executor->main_buffers_, RowBuffers::Allocate(device, *decoder, options.max_rows));
  // Token ids, positions, gpu slots.
  TANDEM_ASSIGN_OR_RETURN(executor->main_inputs_, IntInputs::Allocate(device, 3 * options.max_rows));
  executor->graph_batch_sizes_ = options.graph_batch_sizes;
  std::sort(executor->graph_batch_sizes_.begin(), executor->graph_batch_sizes_.end());
  TANDEM_CHECK(
      executor->graph_batch_sizes_.empty() || (executor->graph_batch_sizes_.front() > 0 &&
                                               executor->graph_batch_sizes_.back() <= options.max_rows),
      "graphs of {} rows, {} in an iteration", executor->graph_batch_sizes_.back(), options.max_rows);
  TANDEM_ASSIGN_OR_RETURN(
      executor->logits_stage_,
      LogitsStage::Create(device, decoder, ops, 2 * options.max_rows, LogitsSliceRows(options)));
  TANDEM_ASSIGN_OR_RETURN(
      executor->gpu_plan_,
      ops->CreateAttentionPlan({.max_rows = options.max_rows,
                                .max_sequences = options.max_rows,
                                // The block of a token that is being computed is reserved already.
                                .max_blocks = cache->total_blocks(Tier::kGpu),
                                .kv = cache->LayerView(Tier::kGpu, 0).shape,
                                .num_heads = config.num_heads,
                                .sliding_window = config.sliding_window}));
  executor->timeline_ = options.timeline;
  TANDEM_ASSIGN_OR_RETURN(executor->stamps_,
                          IterationStamps::Allocate(device, config.num_layers, options.timeline != nullptr));
  if (options.timeline != nullptr) executor->clock_offset_ns_ = device->ClockOffsetNs();
  executor->graphs_ =
      std::make_unique<DecodeGraphs>(DecodeGraphs::Parts{.decoder = decoder,
                                                         .cache = cache,
                                                         .buffers = &executor->main_buffers_,
                                                         .inputs = &executor->main_inputs_,
                                                         .plan = executor->gpu_plan_.get(),
                                                         .logits_stage = executor->logits_stage_.get(),
                                                         .stamps = &executor->stamps_});
  if (cache->total_blocks(Tier::kCpu) > 0) {
    executor->cpu_attention_ = std::make_unique<CpuAttention>(options.cpu_attention);
  }
  return executor;
}

size_t Executor::BytesFor(const Decoder& decoder, const ExecutorOptions& options) {
  return RowBuffers::BytesFor(decoder, options.max_rows) +
         LogitsStage::BytesFor(decoder, LogitsSliceRows(options));
}

void Executor::WarmUp() {
  // Besides the graphs': chunks of prompts, up to the largest iteration.
  std::vector<int64_t> row_counts = graph_batch_sizes_;
  const int64_t max_rows = main_buffers_.max_rows();
  constexpr int64_t kFewestChunkRows = 512;
  for (int64_t rows = kFewestChunkRows; rows < max_rows; rows *= 2) row_counts.push_back(rows);
  row_counts.push_back(max_rows);
  std::sort(row_counts.begin(), row_counts.end());
  row_counts.erase(std::unique(row_counts.begin(), row_counts.end()), row_counts.end());
  decoder_->Tune(*compute_stream_, row_counts, graph_batch_sizes_);
  graphs_->Capture(*compute_stream_, graph_batch_sizes_);
}

void Executor::DropCohort(CohortId id) {
  const auto found = cohorts_.find(id);
  if (found == cohorts_.end()) return;
  // Its last task has been armed: Run waited for the stream that does it.
  Cohort& cohort = *found->second;
  if (cohort.sequence > 0) static_cast<void>(cohort.done->Wait(cohort.sequence));
  cohorts_.erase(found);
}

std::vector<int32_t> Executor::BlocksOf(const DecodeRow& row) const {
  const std::vector<int32_t>& table = cache_->block_table(row.sequence);
  const auto num_blocks = static_cast<std::ptrdiff_t>(cache_->BlocksFor(row.position + 1));
  return {table.begin(), table.begin() + num_blocks};
}

AttentionSequence Executor::GpuSequence(const DecodeRow& row, int64_t row_index) const {
  return {
      .row_begin = row_index, .num_rows = 1, .context_len = row.position + 1, .block_table = BlocksOf(row)};
}

std::unique_ptr<DecodePlan> Executor::PlanCpuDecodes(const std::vector<DecodeRow>& rows) const {
  std::vector<DecodeSequence> sequences;
  sequences.reserve(rows.size());
  for (const DecodeRow& row : rows)
    sequences.push_back({.context_len = row.position + 1, .block_table = BlocksOf(row)});
  const KvLayerView kv = cache_->LayerView(Tier::kCpu, 0);
  const DecodeShape shape = {.kv = kv.shape,
                             .num_heads = decoder_->config().num_heads,
                             .sliding_window = decoder_->config().sliding_window,
                             .heads_per_part = kv.heads_per_part};
  return std::make_unique<DecodePlan>(std::move(sequences), shape, cpu_attention_->num_threads());
}

void Executor::SubmitCpuAttention(int64_t layer, DecodePlan* plan, const RowBatch& rows, int64_t row_begin,
                                  Flag* ready, Flag* done, uint32_t value) {
  const ModelConfig& config = decoder_->config();
  const auto num_rows = static_cast<int64_t>(plan->sequences().size());
  const int64_t q_width = config.num_heads * config.head_dim;
  const int64_t kv_width = config.num_kv_heads * config.head_dim;
  const MatrixView qkv = rows.qkv.Rows(row_begin, num_rows);
  cpu_attention_->Submit({.plan = plan,
                          .layer = {.kv = cache_->LayerView(Tier::kCpu, layer),
                                    .q = qkv.Columns(0, q_width),
                                    .k = qkv.Columns(q_width, kv_width),
                                    .v = qkv.Columns(q_width + kv_width, kv_width),
                                    .out = rows.attention_out.Rows(row_begin, num_rows),
                                    .lse = nullptr,
                                    .scale = decoder_->attention_scale()},
                          .ready = ready,
                          .ready_value = value,
                          .done = done,
                          .done_value = value});
}

void Executor::BeginMoves(const std::vector<Move>& moves) {
  if (moves.empty()) return;
  for (const Move& move : moves) {
    TANDEM_CHECK(cache_->Move(move.sequence, move.to, *copy_stream_),
                 "no room in the {} tier to move sequence {}", TierName(move.to), move.sequence);
  }
  copy_stream_->Record(*moved_);
  // Attention over the cpu tier waits for what the compute stream announces after this.
  compute_stream_->Wait(*moved_);
}

void Executor::PrepareMain(const MainSubBatch& main, const FindRequest& find_request, MainState* state) {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> gpu_slots;
  AttentionBatch gpu_batch;
  const auto add_row = [&](const Request& request, int64_t position) {
    token_ids.push_back(request.TokenAt(position));
    positions.push_back(static_cast<int32_t>(position));
    return static_cast<int32_t>(token_ids.size() - 1);
  };

  for (const PrefillChunk& chunk : main.prefills) {
    const Request& request = find_request(chunk.sequence);
    const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
    AttentionSequence sequence = GpuSequence({chunk.sequence, chunk.start + chunk.num_tokens - 1},
                                             static_cast<int64_t>(token_ids.size()));
    sequence.num_rows = chunk.num_tokens;
    gpu_batch.sequences.push_back(std::move(sequence));
    for (int64_t position = chunk.start; position < chunk.start + chunk.num_tokens; ++position) {
      const int32_t row = add_row(request, position);
      gpu_slots.push_back(cache_->SlotOf(chunk.sequence, position));
      const bool wants_logprob = request.sampling.num_prompt_top_logprobs >= 0 && position + 1 < prompt_len &&
                                 position >= request.num_reported_prompt_logprobs;
      if (wants_logprob) state->logits.AddPromptLogprob(row, request, position + 1);
    }
    if (chunk.samples) state->logits.AddSample(static_cast<int32_t>(token_ids.size() - 1), request);
  }
  for (const DecodeRow& decode : main.gpu_decodes) {
    const Request& request = find_request(decode.sequence);
    const int32_t row = add_row(request, decode.position);
    gpu_batch.sequences.push_back(GpuSequence(decode, row));
    gpu_slots.push_back(cache_->SlotOf(decode.sequence, decode.position));
    state->logits.AddSample(row, request);
  }
  state->num_gpu_rows = static_cast<int64_t>(token_ids.size());
  for (const DecodeRow& decode : main.cpu_decodes) {
    const Request& request = find_request(decode.sequence);
    const int32_t row = add_row(request, decode.position);
    gpu_slots.push_back(-1);
    state->logits.AddSample(row, request);
  }
  state->num_cpu_rows = static_cast<int64_t>(main.cpu_decodes.size());

  if (state->graph_size > 0) DecodeGraphs::Pad(state->graph_size, &token_ids, &positions, &gpu_slots);
  main_inputs_.Clear();
  state->batch = std::make_unique<RowBatch>(main_buffers_, static_cast<int64_t>(token_ids.size()));
  state->batch->token_ids = main_inputs_.Add(token_ids);
  state->batch->positions = main_inputs_.Add(positions);
  state->batch->slots = main_inputs_.Add(gpu_slots);
  main_inputs_.Upload(*compute_stream_);
  gpu_batch.num_rows = state->num_gpu_rows;
  if (state->num_gpu_rows > 0) ops_->PlanAttention(*compute_stream_, gpu_batch, gpu_plan_.get());
  if (state->num_cpu_rows > 0) state->cpu_plan = PlanCpuDecodes(main.cpu_decodes);
}

Status Executor::EnterCohorts(const IterationPlan& plan, const FindRequest& find_request) {
  for (const CohortStep& step : plan.cohorts) {
    const auto found = cohorts_.find(step.cohort);
    if (found != cohorts_.end()) {
      TANDEM_CHECK(found->second->cursor == step.cursor && found->second->rows == step.rows,
                   "cohort {} is at layer {}, the plan says {} or names other rows", step.cohort,
                   found->second->cursor, step.cursor);
      continue;
    }
    TANDEM_CHECK(step.cursor == kEntry, "cohort {} is unknown at layer {}", step.cohort, step.cursor);
    if (step.visits.empty()) continue;
    TANDEM_ASSIGN_OR_RETURN(auto cohort, Cohort::Create(device_, *decoder_, step.rows));
    std::vector<int32_t> token_ids;
    std::vector<int32_t> positions;
    for (const DecodeRow& row : step.rows) {
      token_ids.push_back(find_request(row.sequence).TokenAt(row.position));
      positions.push_back(static_cast<int32_t>(row.position));
    }
    cohort->batch->token_ids = cohort->inputs.Add(token_ids);
    cohort->batch->positions = cohort->inputs.Add(positions);
    cohort->inputs.Upload(*compute_stream_);
    cohort->attention_plan = PlanCpuDecodes(step.rows);
    cohorts_.emplace(step.cohort, std::move(cohort));
  }
  return {};
}

// Between layer `boundary` and the next: post-projection of the one, pre-projection of the other.
void Executor::PassBoundary(int64_t boundary, MainState* main) {
  const StreamRange range(*compute_stream_, "boundary");
  RowBatch* rows = main->batch.get();
  if (boundary == kEntry) {
    decoder_->Embed(*compute_stream_, rows);
    stamps_.Detail(*compute_stream_, "embedding");
  } else {
    decoder_->PostProjection(*compute_stream_, boundary, rows);
    stamps_.Detail(*compute_stream_, "post-projection", boundary);
  }
  if (boundary == decoder_->config().num_layers - 1) {
    logits_stage_->Run(*compute_stream_, rows, &main->logits);
    stamps_.Detail(*compute_stream_, "logits and sampling");
    return;
  }
  decoder_->PreProjection(*compute_stream_, boundary + 1, cache_->LayerView(Tier::kGpu, boundary + 1), rows);
  stamps_.Detail(*compute_stream_, "pre-projection", boundary + 1);
  if (main->num_cpu_rows == 0) return;
  // The CPU may start as soon as Q/K/V are there, while cohorts visit and the gpu rows attend.
  ++main_sequence_;
  compute_stream_->SetFlag(*main_ready_, main_sequence_);
  SubmitCpuAttention(boundary + 1, main->cpu_plan.get(), *main->batch, main->num_gpu_rows, main_ready_.get(),
                     main_done_.get(), main_sequence_);
}

void Executor::AttendMain(int64_t layer, MainState* main) {
  if (main->num_gpu_rows > 0) {
    const StreamRange range(*compute_stream_, "gpu attention");
    decoder_->Attend(*compute_stream_, *gpu_plan_, cache_->LayerView(Tier::kGpu, layer), 0,
                     main->num_gpu_rows, *main->batch);
    stamps_.Detail(*compute_stream_, "gpu attention", layer);
  }
  if (main->num_cpu_rows > 0) compute_stream_->WaitFlag(*main_done_, main_sequence_);
}

void Executor::VisitCohort(const Visit& visit, Cohort* cohort, LogitsWork* work) {
  TANDEM_CHECK(visit.layer == cohort->cursor, "visit of layer {}, cursor at {}", visit.layer, cohort->cursor);
  const StreamRange range(*compute_stream_, "visit of a cohort");
  RowBatch* rows = cohort->batch.get();
  if (visit.layer == kEntry) {
    decoder_->Embed(*compute_stream_, rows);
  } else {
    compute_stream_->WaitFlag(*cohort->done, cohort->sequence);
    decoder_->PostProjection(*compute_stream_, visit.layer, rows);
  }
  const int64_t next_layer = visit.layer + 1;
  if (next_layer == decoder_->config().num_layers) {
    cohort->cursor = kEntry;
    logits_stage_->Run(*compute_stream_, rows, work);
    return;
  }
  cohort->cursor = next_layer;
  // Appends nothing to the gpu tier: these rows' KV lives on the CPU.
  decoder_->PreProjection(*compute_stream_, next_layer, KvLayerView{}, rows);
  ++cohort->sequence;
  compute_stream_->SetFlag(*cohort->ready, cohort->sequence);
  SubmitCpuAttention(next_layer, cohort->attention_plan.get(), *rows, 0, cohort->ready.get(),
                     cohort->done.get(), cohort->sequence);
}

int64_t Executor::GraphSizeFor(const IterationPlan& plan) const {
  const MainSubBatch& main = plan.main;
  const bool only_decodes =
      !main.gpu_decodes.empty() && main.prefills.empty() && main.cpu_decodes.empty() && plan.cohorts.empty();
  return only_decodes ? graphs_->SizeFor(static_cast<int64_t>(main.gpu_decodes.size())) : 0;
}

void Executor::WalkLayers(const IterationPlan& plan, const FindRequest& find_request) {
  MainState& main = running_->main;
  const int64_t num_layers = decoder_->config().num_layers;
  logits_stage_->BeginIteration();
  logits_stage_->Prepare(&main.logits);
  for (const CohortStep& step : plan.cohorts) {
    LogitsWork& work = running_->cohort_logits[step.cohort];
    if (step.visits.empty() || step.visits.back().layer != num_layers - 1) continue;
    for (size_t i = 0; i < step.rows.size(); ++i) {
      work.AddSample(static_cast<int32_t>(i), find_request(step.rows[i].sequence));
    }
    logits_stage_->Prepare(&work);
  }
  logits_stage_->Upload(*compute_stream_);

  std::vector<size_t> next_visit(plan.cohorts.size(), 0);
  for (int64_t boundary = kEntry; boundary < num_layers; ++boundary) {
    if (main.batch) PassBoundary(boundary, &main);
    for (size_t i = 0; i < plan.cohorts.size(); ++i) {
      const CohortStep& step = plan.cohorts[i];
      if (next_visit[i] == step.visits.size() || step.visits[next_visit[i]].boundary != boundary) continue;
      VisitCohort(step.visits[next_visit[i]++], cohorts_.at(step.cohort).get(),
                  &running_->cohort_logits.at(step.cohort));
      stamps_.Detail(*compute_stream_, "visit of a cohort", boundary);
    }
    if (main.batch && boundary + 1 < num_layers) AttendMain(boundary + 1, &main);
  }
}

Status Executor::Start(const IterationPlan& plan, const FindRequest& find_request) {
  TANDEM_CHECK(running_ == nullptr, "an iteration is running already");
  const StreamRange range(*compute_stream_, "iteration");
  TANDEM_RETURN_IF_ERROR(EnterCohorts(plan, find_request));
  running_ = std::make_unique<Running>();
  running_->plan = plan;
  running_->find_request = find_request;
  MainState& main = running_->main;
  main.graph_size = GraphSizeFor(plan);
  if (!plan.main.empty()) PrepareMain(plan.main, find_request, &main);
  stamps_.Begin(*compute_stream_);
  if (main.graph_size > 0) {
    graphs_->Launch(*compute_stream_, main.graph_size);
    logits_stage_->SampleAll(*compute_stream_, &main.logits);
    stamps_.Mark(*compute_stream_, "sampling");
  } else {
    WalkLayers(plan, find_request);
    stamps_.Mark(*compute_stream_, "end");
  }
  return {};
}

IterationResult Executor::Finish() {
  TANDEM_CHECK(running_ != nullptr, "no iteration is running");
  compute_stream_->Synchronize();
  copy_stream_->Synchronize();
  const std::unique_ptr<Running> running = std::move(running_);
  const IterationPlan& plan = running->plan;
  if (timeline_ != nullptr && !timeline_->full()) stamps_.AddTo(timeline_, clock_offset_ns_);

  IterationResult result;
  result.device_begin_ns = stamps_.begin_ns();
  result.device_end_ns = stamps_.end_ns();
  auto next_sampled = running->main.logits.results.begin();
  for (const PrefillChunk& chunk : plan.main.prefills) {
    SequenceResult& sequence = result.sequences.emplace_back();
    sequence.sequence = chunk.sequence;
    sequence.num_computed = chunk.start + chunk.num_tokens;
    const Request& request = running->find_request(chunk.sequence);
    const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
    if (request.sampling.num_prompt_top_logprobs >= 0) {
      const int64_t begin = std::max(chunk.start, request.num_reported_prompt_logprobs);
      const int64_t end = std::min(sequence.num_computed, prompt_len - 1);
      for (int64_t position = begin; position < end; ++position) {
        sequence.prompt_logprobs.push_back(std::move(*next_sampled++));
      }
    }
    if (chunk.samples) sequence.token = std::move(*next_sampled++);
  }
  const auto add_decode = [&](const DecodeRow& row, SampledToken token) {
    result.sequences.push_back(
        {.sequence = row.sequence, .num_computed = row.position + 1, .token = std::move(token)});
  };
  for (const DecodeRow& row : plan.main.gpu_decodes) add_decode(row, std::move(*next_sampled++));
  for (const DecodeRow& row : plan.main.cpu_decodes) add_decode(row, std::move(*next_sampled++));
  for (const CohortStep& step : plan.cohorts) {
    LogitsWork& work = running->cohort_logits.at(step.cohort);
    if (work.results.empty()) continue;
    for (size_t i = 0; i < step.rows.size(); ++i) add_decode(step.rows[i], std::move(work.results[i]));
    cohorts_.erase(step.cohort);
  }
  return result;
}

Result<IterationResult> Executor::Run(const IterationPlan& plan, const FindRequest& find_request) {
  TANDEM_RETURN_IF_ERROR(Start(plan, find_request));
  return Finish();
}

}  // namespace tandem
