#include "execute/main_pass.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

std::vector<int64_t> Distinct(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

MainPass::MainPass(const SharedParts& parts, const ExecutorOptions& options, RidingPass* riding)
    : parts_(parts),
      riding_(riding),
      max_rows_(options.max_rows),
      graph_shapes_(GraphShapesOf(options)),
      graphs_(std::make_unique<DecodeGraphs>(
          DecodeGraphs::Parts{.shared = parts, .buffers = &buffers_, .inputs = &inputs_, .riding = riding})) {
  for (const GraphShape& shape : graph_shapes_) {
    TANDEM_CHECK(
        shape.num_rows > 0 && shape.num_rows <= max_rows_ && shape.num_rider_rows <= options.max_rider_rows,
        "graphs of {} rows and {} riders, {} and {} in an iteration", shape.num_rows, shape.num_rider_rows,
        max_rows_, options.max_rider_rows);
  }
}

Result<std::unique_ptr<MainPass>> MainPass::Create(const SharedParts& parts, const ExecutorOptions& options,
                                                   RidingPass* riding) {
  auto pass = std::unique_ptr<MainPass>(new MainPass(parts, options, riding));
  const int64_t num_rows = options.max_rows + options.max_rider_rows;
  TANDEM_ASSIGN_OR_RETURN(pass->buffers_, RowBuffers::Allocate(parts.device, *parts.decoder, num_rows));
  // Token ids, positions, slots.
  TANDEM_ASSIGN_OR_RETURN(pass->inputs_, IntInputs::Allocate(parts.device, 3 * num_rows));
  TANDEM_ASSIGN_OR_RETURN(pass->gpu_plan_, parts.ops->CreateAttentionPlan(parts.AttentionCapacityFor(
                                               options.max_rows, parts.kv->layout(Tier::kGpu).num_blocks,
                                               options.max_table_blocks)));
  if (parts.cpu_attention != nullptr) TANDEM_RETURN_IF_ERROR(pass->CreateCpuSide(options));
  return pass;
}

Status MainPass::CreateCpuSide(const ExecutorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(cpu_rows_, CpuTierRows::Create(parts_, options.max_cpu_rows, "main"));
  transit_ = std::make_unique<KvTransit>(parts_.device, parts_.ops, parts_.kv, parts_.transit_slots);
  TANDEM_ASSIGN_OR_RETURN(transit_plan_, parts_.ops->CreateAttentionPlan(parts_.AttentionCapacityFor(
                                             max_rows_, parts_.transit_slots->max_blocks())));
  return {};
}

size_t MainPass::BytesFor(const Decoder& decoder, const ExecutorOptions& options) {
  return RowBuffers::BytesFor(decoder, options.max_rows + options.max_rider_rows);
}

void MainPass::WarmUp() {
  std::vector<int64_t> graph_rows;
  graph_rows.reserve(graph_shapes_.size());
  for (const GraphShape& shape : graph_shapes_) graph_rows.push_back(shape.total_rows());
  graph_rows = Distinct(std::move(graph_rows));
  // Besides the graphs': chunks of prompts, up to the largest iteration.
  std::vector<int64_t> row_counts = graph_rows;
  constexpr int64_t kFewestChunkRows = 512;
  for (int64_t rows = kFewestChunkRows; rows < max_rows_; rows *= 2) row_counts.push_back(rows);
  row_counts.push_back(max_rows_);
  parts_.decoder->Tune(parts_.compute_stream(), Distinct(std::move(row_counts)), graph_rows);
  graphs_->Capture(parts_.compute_stream(), *gpu_plan_, graph_shapes_);
}

GraphShape MainPass::GraphShapeFor(const MainSubBatch& main) const {
  const bool only_decodes = std::all_of(main.spans.begin(), main.spans.end(), [](const RowSpan& span) {
    return RowKindOf(span) == RowKind::kGpuDecode;
  });
  if (!only_decodes) return {};
  const auto num_rows = static_cast<int64_t>(main.spans.size());
  if (riding_ == nullptr) return graphs_->ShapeFor(num_rows, 0, 0);
  return graphs_->ShapeFor(num_rows, riding_->MostRows(), riding_->MeanRows());
}

MainRows MainPass::Prepare(IterationInput* input, bool as_graph, int64_t first_transit_block) {
  if (transit_) transit_->Begin(first_transit_block);
  const MainSubBatch& main = input->plan.main;
  if (main.empty()) return {};
  const GraphShape graph = as_graph ? GraphShapeFor(main) : GraphShape{};
  MainRows rows =
      LayOutMainRows(input, parts_.kv->layout(Tier::kGpu).shape.block_size, transit_.get(), graph.num_rows);
  rows.graph = graph;
  if (riding_ != nullptr && !riding_->riders().empty()) {
    AddRiderRows(*input, riding_->riders(), parts_.num_layers(),
                 graph.empty() ? riding_->MostRows() : graph.num_rider_rows, &rows);
  }
  inputs_.Clear();
  rows.batch.emplace(buffers_, rows.num_rows());
  rows.device_token_ids = inputs_.Add(rows.token_ids);
  rows.batch->token_ids = rows.device_token_ids;
  rows.device_positions = inputs_.Add(rows.positions);
  rows.batch->positions = rows.device_positions;
  rows.batch->slots = inputs_.Add(rows.slots);
  if (transit_) transit_->Start(0, parts_.num_layers(), parts_.copy_stream());
  inputs_.Upload(parts_.compute_stream());
  if (std::ranges::any_of(rows.token_ids, [](int32_t token) { return token < 0; })) {
    parts_.ops->PutDrawnTokens(parts_.compute_stream(), {.token_ids = rows.device_token_ids,
                                                         .num_rows = rows.num_rows(),
                                                         .drawn = parts_.logits_stage->drawn()});
  }
  if (rows.num_cpu_rows > 0) cpu_rows_->Begin(std::move(rows.cpu_sequences));
  return rows;
}

void MainPass::PlanAttention(const MainRows& rows) {
  Stream& stream = parts_.compute_stream();
  if (rows.num_gpu_rows > 0) parts_.ops->PlanAttention(stream, rows.gpu_attention, gpu_plan_.get());
  if (rows.num_transit_rows > 0)
    parts_.ops->PlanAttention(stream, rows.transit_attention, transit_plan_.get());
}

void MainPass::Replay(const MainRows& rows) {
  if (Collective* collective = parts_.decoder->collective()) collective->AwaitReplay();
  graphs_->Launch(parts_.compute_stream(), rows.graph);
}

void MainPass::AppendAndProject(int64_t layer, MainRows* rows) {
  Stream& stream = parts_.compute_stream();
  if (transit_) transit_->AwaitSlot(layer, stream);
  // Of cpu rows, and of riders behind them, nothing is appended here.
  const std::array<KvRows, 2> appends = {{
      {.row_begin = 0, .num_rows = rows->num_gpu_rows, .kv = parts_.kv->LayerView(Tier::kGpu, layer)},
      {.row_begin = rows->transit_begin(),
       .num_rows = rows->num_transit_rows,
       .kv = transit_ ? transit_->slots().LayerView(layer) : KvLayerView{}},
  }};
  parts_.decoder->PreProjection(stream, layer, appends, &*rows->batch);
  stamps().Detail(stream, "pre-projection", layer);
  if (rows->num_transit_rows > 0)
    transit_->CopyOut(layer, stream, parts_.copy_stream(), &parts_.lanes->copy().stamps);
  // The CPU may start as soon as Q/K/V are there, while cohorts visit and the gpu rows attend.
  if (rows->num_cpu_rows > 0) cpu_rows_->Attend(layer, *rows->batch, rows->cpu_begin());
}

void MainPass::PassBoundary(int64_t boundary, MainRows* rows) {
  if (!rows->batch) return;
  Stream& stream = parts_.compute_stream();
  const StreamRange range(stream, "boundary");
  RowBatch* batch = &*rows->batch;
  const int64_t num_riders = RidersAt(boundary);
  if (boundary != kEntry && num_riders > 0) {
    riding_->Await();
    stamps().Detail(stream, "wait for riders", boundary);
  }
  batch->Resize(rows->rider_begin + num_riders);
  if (boundary == kEntry) {
    parts_.decoder->Embed(stream, batch);
    stamps().Detail(stream, "embedding");
  } else {
    parts_.decoder->PostProjection(stream, boundary, batch);
    stamps().Detail(stream, "post-projection", boundary);
  }
  if (boundary + 1 < parts_.num_layers()) {
    AppendAndProject(boundary + 1, rows);
  } else {
    parts_.logits_stage->Run(stream, batch, &rows->logits);
    stamps().Detail(stream, "logits and sampling");
  }
  ExchangeRiders(boundary, *rows);
}

void MainPass::ExchangeRiders(int64_t boundary, const MainRows& rows) {
  if (riding_ == nullptr || riding_->riders().empty()) return;
  const bool last = boundary + 1 == parts_.num_layers();
  riding_->Exchange(boundary,
                    {.row_begin = rows.rider_begin,
                     .here = RidersAt(boundary),
                     .next = last ? 0 : RidersAt(boundary + 1),
                     .positions = rows.device_positions},
                    *rows.batch);
}

void MainPass::Attend(int64_t layer, const MainRows& rows) {
  if (!rows.batch) return;
  Stream& stream = parts_.compute_stream();
  const StreamRange range(stream, "attention");
  if (rows.num_gpu_rows > 0) {
    parts_.decoder->Attend(stream, *gpu_plan_, parts_.kv->LayerView(Tier::kGpu, layer), 0, rows.num_gpu_rows,
                           *rows.batch);
  }
  if (rows.num_transit_rows > 0) {
    parts_.decoder->Attend(stream, *transit_plan_, transit_->slots().LayerView(layer), rows.transit_begin(),
                           rows.num_transit_rows, *rows.batch);
    transit_->Attended(layer, stream, parts_.copy_stream());
  }
  stamps().Detail(stream, "gpu attention", layer);
  if (rows.num_cpu_rows > 0) {
    cpu_rows_->AwaitOutput(layer, *rows.batch, rows.cpu_begin());
    stamps().Detail(stream, "wait for cpu attention", layer);
  }
}

}  // namespace tandem
