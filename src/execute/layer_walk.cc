// How Executor takes the sub-batches of an iteration through the layers.

#include <array>

#include "base/check.h"
#include "execute/executor.h"
#include "execute/running_iteration.h"

namespace tandem {

// Pre-projection of a layer: K and V go to the gpu tier or to the transit, or with Q to the host.
void Executor::AppendAndProject(int64_t layer) {
  MainRows& main = running_->main;
  if (transit_) transit_->AwaitSlot(layer, *compute_stream_);
  // Of cpu decodes, and of riders behind them, nothing is appended here.
  const std::array<KvRows, 2> appends = {{
      {.row_begin = 0, .num_rows = main.num_gpu_rows, .kv = memory_->LayerView(Tier::kGpu, layer)},
      {.row_begin = main.transit_begin(),
       .num_rows = main.num_transit_rows,
       .kv = transit_ ? transit_->LayerView(layer) : KvLayerView{}},
  }};
  decoder_->PreProjection(*compute_stream_, layer, appends, main.batch.get());
  stamps_.Detail(*compute_stream_, "pre-projection", layer);
  if (main.num_transit_rows > 0) transit_->CopyOut(layer, *compute_stream_, *copy_stream_, &copy_stamps_);
  // The CPU may start as soon as Q/K/V are there, while cohorts visit and the gpu rows attend.
  if (main.num_cpu_rows > 0) main_cpu_rows_->Attend(layer, *main.batch, main.cpu_begin());
}

// Between layer `boundary` and the next: post-projection of the one, pre-projection of the other.
void Executor::PassBoundary(int64_t boundary) {
  const StreamRange range(*compute_stream_, "boundary");
  MainRows& main = running_->main;
  RowBatch* rows = main.batch.get();
  const int64_t num_riders = RidersAt(boundary);
  if (boundary != kEntry && num_riders > 0) {
    riding_->Await();
    stamps_.Detail(*compute_stream_, "wait for riders", boundary);
  }
  rows->Resize(main.rider_begin + num_riders);
  if (boundary == kEntry) {
    decoder_->Embed(*compute_stream_, rows);
    stamps_.Detail(*compute_stream_, "embedding");
  } else {
    decoder_->PostProjection(*compute_stream_, boundary, rows);
    stamps_.Detail(*compute_stream_, "post-projection", boundary);
  }
  if (boundary + 1 < decoder_->config().num_layers) {
    AppendAndProject(boundary + 1);
  } else {
    logits_stage_->Run(*compute_stream_, rows, &main.logits);
    stamps_.Detail(*compute_stream_, "logits and sampling");
  }
  ExchangeRiders(boundary);
}

int64_t Executor::RidersAt(int64_t boundary) const {
  return riding_ != nullptr ? riding_->RowsAt(boundary) : 0;
}

void Executor::ExchangeRiders(int64_t boundary) {
  if (riding_ == nullptr || riding_->riders().empty()) return;
  const MainRows& main = running_->main;
  const bool last = boundary + 1 == decoder_->config().num_layers;
  riding_->Exchange(boundary,
                    {.row_begin = main.rider_begin,
                     .here = RidersAt(boundary),
                     .next = last ? 0 : RidersAt(boundary + 1),
                     .positions = main.positions},
                    *main.batch);
}

void Executor::AttendMain(int64_t layer) {
  const MainRows& main = running_->main;
  const StreamRange range(*compute_stream_, "attention");
  if (main.num_gpu_rows > 0) {
    decoder_->Attend(*compute_stream_, *gpu_plan_, memory_->LayerView(Tier::kGpu, layer), 0,
                     main.num_gpu_rows, *main.batch);
  }
  if (main.num_transit_rows > 0) {
    decoder_->Attend(*compute_stream_, *transit_plan_, transit_->LayerView(layer), main.transit_begin(),
                     main.num_transit_rows, *main.batch);
    transit_->Attended(layer, *compute_stream_, *copy_stream_);
  }
  stamps_.Detail(*compute_stream_, "gpu attention", layer);
  if (main.num_cpu_rows > 0) {
    main_cpu_rows_->AwaitOutput(layer, *main.batch, main.cpu_begin());
    stamps_.Detail(*compute_stream_, "wait for cpu attention", layer);
  }
}

void Executor::VisitCohort(const Visit& visit, Cohort* cohort, LogitsWork* work) {
  TANDEM_CHECK(visit.layer == cohort->cursor, "visit of layer {}, cursor at {}", visit.layer, cohort->cursor);
  const StreamRange range(*compute_stream_, "visit of a cohort");
  RowBatch* rows = cohort->batch.get();
  if (visit.layer == kEntry) {
    decoder_->Embed(*compute_stream_, rows);
  } else {
    cohort->cpu_rows->AwaitOutput(visit.layer, *rows, 0);
    stamps_.Detail(*compute_stream_, "wait for cpu attention", visit.layer);
    decoder_->PostProjection(*compute_stream_, visit.layer, rows);
  }
  const int64_t next_layer = visit.layer + 1;
  if (next_layer == decoder_->config().num_layers) {
    cohort->cursor = kEntry;
    logits_stage_->Run(*compute_stream_, rows, work);
  } else {
    cohort->cursor = next_layer;
    // Appends nothing to the gpu tier: these rows' KV lives on the CPU.
    decoder_->PreProjection(*compute_stream_, next_layer, {}, rows);
    cohort->cpu_rows->Attend(next_layer, *rows, 0);
  }
  stamps_.Detail(*compute_stream_, "visit of a cohort", visit.layer);
}

void Executor::WalkLayers(const IterationPlan& plan, const FindRequest& find_request) {
  MainRows& main = running_->main;
  const int64_t num_layers = decoder_->config().num_layers;
  std::vector<size_t> next_visit(plan.cohorts.size(), 0);
  for (int64_t boundary = kEntry; boundary < num_layers; ++boundary) {
    if (boundary + 1 < num_layers) moves_->AwaitLayer(boundary + 1, *compute_stream_);
    if (main.batch) PassBoundary(boundary);
    if (boundary == kEntry) {
      // The device is at work meanwhile.
      PlanMainAttention();
      PrepareVisits(plan, find_request);
    }
    for (size_t i = 0; i < plan.cohorts.size(); ++i) {
      const CohortStep& step = plan.cohorts[i];
      if (step.rides || next_visit[i] == step.visits.size() ||
          step.visits[next_visit[i]].boundary != boundary)
        continue;
      VisitCohort(step.visits[next_visit[i]++], cohorts_.at(step.cohort).get(),
                  &running_->cohort_logits.at(step.cohort));
    }
    if (main.batch && boundary + 1 < num_layers) AttendMain(boundary + 1);
    // Between the layers: all cohorts at once take longer than the device takes for its first layer.
    if (riding_) riding_->SubmitAttention(boundary);
  }
}

}  // namespace tandem
