#include "execute/executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "execute/running_iteration.h"

namespace tandem {
namespace {

CpuAttentionStats Since(const CpuAttentionStats& now, const CpuAttentionStats& before) {
  return {.num_tasks = now.num_tasks - before.num_tasks,
          .kv_bytes = now.kv_bytes - before.kv_bytes,
          .busy_us = now.busy_us - before.busy_us,
          .task_us = now.task_us - before.task_us};
}

}  // namespace

void Executor::BeginMoves(const std::vector<BlockMove>& moves) {
  if (timeline_ != nullptr) copy_stamps_.Begin(*copy_stream_);
  moves_->Begin(moves, *copy_stream_);
  if (timeline_ != nullptr && moves_->any()) copy_stamps_.Mark(*copy_stream_, "moves between tiers");
}

void Executor::PrepareMain(const IterationPlan& plan, const FindRequest& find_request) {
  if (transit_) transit_->Begin();
  if (plan.main.empty()) return;
  running_->main = PrepareMainRows(plan.main, GraphShapeFor(plan), *books_, find_request, main_buffers_,
                                   &main_inputs_, transit_.get(), riding_.get());
  if (transit_) transit_->Start(*copy_stream_);
  main_inputs_.Upload(*compute_stream_);
  if (running_->main.num_cpu_rows > 0) main_cpu_rows_->Begin(plan.main.cpu_decodes);
}

void Executor::PlanMainAttention() {
  const MainRows& main = running_->main;
  if (main.num_gpu_rows > 0) ops_->PlanAttention(*compute_stream_, main.gpu_attention, gpu_plan_.get());
  if (main.num_transit_rows > 0)
    ops_->PlanAttention(*compute_stream_, main.transit_attention, transit_plan_.get());
}

GraphShape Executor::GraphShapeFor(const IterationPlan& plan) const {
  const MainSubBatch& main = plan.main;
  const bool own_visits = std::any_of(plan.cohorts.begin(), plan.cohorts.end(), [](const CohortStep& step) {
    return !step.rides && !step.visits.empty();
  });
  const bool only_decodes = !main.gpu_decodes.empty() && main.prefills.empty() && main.cpu_decodes.empty() &&
                            !own_visits && !moves_->any();
  if (!only_decodes) return {};
  const auto num_rows = static_cast<int64_t>(main.gpu_decodes.size());
  if (riding_ == nullptr) return graphs_->ShapeFor(num_rows, 0, 0);
  return graphs_->ShapeFor(num_rows, riding_->MostRows(), riding_->MeanRows());
}

void Executor::BeginStamps() {
  stamps_.Begin(*compute_stream_);
  if (timeline_ == nullptr) return;
  if (!cpu_attention_) return;
  out_stamps_.Begin(*out_stream_);
  in_stamps_.Begin(*in_stream_);
  if (riding_) rider_stamps_.Begin(riding_->stream());
}

Status Executor::Start(const IterationPlan& plan, const FindRequest& find_request) {
  TANDEM_CHECK(running_ == nullptr, "an iteration is running already");
  TANDEM_CHECK(!stalled_ || (plan.main.cpu_decodes.empty() && plan.cohorts.empty()),
               "a plan for the cpu tier while CPU attention is stalled");
  const StreamRange range(*compute_stream_, "iteration");
  if (Status entered = EnterCohorts(plan, find_request); !entered.ok()) {
    // Of those before it the uploads may still run.
    compute_stream_->Synchronize();
    return entered;
  }
  running_ = std::make_unique<Running>();
  running_->plan = plan;
  running_->find_request = find_request;
  if (cpu_attention_) running_->cpu_attention_before = cpu_attention_->stats();
  PrepareRiders(plan);
  PrepareMain(plan, find_request);
  BeginStamps();
  MainRows& main = running_->main;
  if (!main.graph.empty()) {
    PlanMainAttention();
    graphs_->Launch(*compute_stream_, main.graph);
    if (riding_) riding_->SubmitAttention(decoder_->config().num_layers - 1);
    logits_stage_->SampleFrom(*compute_stream_, main.graph.total_rows(), &main.logits);
    stamps_.Mark(*compute_stream_, "sampling");
  } else {
    WalkLayers(plan, find_request);
    stamps_.Mark(*compute_stream_, "end");
  }
  if (riding_ && !riding_->riders().empty()) riding_->End();
  moves_->End();
  compute_stream_->Record(*iteration_end_);
  return {};
}

void Executor::AddToTimeline() {
  if (timeline_ == nullptr || timeline_->full()) return;
  stamps_.AddTo(timeline_, "gpu", clock_offset_ns_);
  copy_stamps_.AddTo(timeline_, "copy: KV", clock_offset_ns_);
  if (!cpu_attention_) return;
  out_stamps_.AddTo(timeline_, "copy: rows out", clock_offset_ns_);
  in_stamps_.AddTo(timeline_, "copy: rows in", clock_offset_ns_);
  if (riding_) rider_stamps_.AddTo(timeline_, "riders", clock_offset_ns_);
}

IterationResult Executor::Finish() {
  TANDEM_CHECK(running_ != nullptr, "no iteration is running");
  const IterationPlan& plan = running_->plan;
  IterationResult result;
  result.stalled = !AwaitIteration(plan);
  if (result.stalled) AbortCpuRows(!plan.main.cpu_decodes.empty());
  compute_stream_->Synchronize();
  copy_stream_->Synchronize();
  if (cpu_attention_) {
    out_stream_->Synchronize();
    in_stream_->Synchronize();
    if (riding_) riding_->stream().Synchronize();
    result.cpu_attention = Since(cpu_attention_->stats(), running_->cpu_attention_before);
  }
  AddToTimeline();
  result.device_begin_ns = stamps_.begin_ns();
  result.device_end_ns = stamps_.end_ns();
  result.as_graph = !running_->main.graph.empty();
  if (!result.stalled &&
      CohortsStalled(std::chrono::nanoseconds(result.device_end_ns - result.device_begin_ns))) {
    result.stalled = true;
    AbortCpuRows(false);
  }
  CollectResults(plan.main, running_->find_request, &running_->main, &result.sequences);
  if (result.stalled) {
    const size_t num_failed = plan.main.cpu_decodes.size();
    for (size_t i = result.sequences.size() - num_failed; i < result.sequences.size(); ++i)
      result.sequences[i].failed = true;
  }
  CollectCohorts(&result);
  running_.reset();
  return result;
}

Result<IterationResult> Executor::Run(const IterationPlan& plan, const FindRequest& find_request) {
  TANDEM_RETURN_IF_ERROR(Start(plan, find_request));
  return Finish();
}

}  // namespace tandem
