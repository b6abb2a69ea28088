#include "execute/executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

CpuAttentionStats Since(const CpuAttentionStats& now, const CpuAttentionStats& before) {
  return {.num_tasks = now.num_tasks - before.num_tasks,
          .kv_bytes = now.kv_bytes - before.kv_bytes,
          .attended_kv_bytes = now.attended_kv_bytes - before.attended_kv_bytes,
          .busy_us = now.busy_us - before.busy_us,
          .task_us = now.task_us - before.task_us};
}

bool AnyPools(const std::vector<SpanInput>& spans) {
  return std::ranges::any_of(spans, [](const SpanInput& span) { return span.pooling.has_value(); });
}

int64_t LogitsSliceRows(const ExecutorOptions& options) {
  int64_t rows = options.logits_slice_rows;
  for (const GraphShape& shape : GraphShapesOf(options)) rows = std::max(rows, shape.total_rows());
  return rows;
}

}  // namespace

Executor::Executor(const SharedParts& parts, const ExecutorOptions& options)
    : parts_(parts),
      moves_(parts.device, parts.ops, parts.kv, parts.num_layers()),
      ends_{parts.device->CreateEvent(), parts.device->CreateEvent()},
      cohort_watch_(options.stall_timeout) {}

Executor::~Executor() {
  // Where Create failed there is nothing that runs.
  if (lanes_ == nullptr) return;
  parts_.compute_stream().Synchronize();
  if (cpu_attention_) {
    // What riders have submitted may never get its Q/K/V.
    if (flight_) flight_->Abort();
    cpu_attention_->WaitIdle();
  }
  parts_.copy_stream().Synchronize();
}

Result<std::unique_ptr<Executor>> Executor::Create(Device* device, Ops* ops, const Decoder* decoder,
                                                   const KvMemory* kv, const ExecutorOptions& options) {
  const ExecutorOptions complete = options.Complete(kv->layout(Tier::kCpu).num_blocks > 0);
  auto executor = std::unique_ptr<Executor>(new Executor({.device = device,
                                                          .ops = ops,
                                                          .decoder = decoder,
                                                          .kv = kv,
                                                          .rider_collective = complete.rider_collective,
                                                          .max_context = complete.max_context},
                                                         complete));
  TANDEM_RETURN_IF_ERROR(executor->CreateParts(complete));
  return executor;
}

Status Executor::CreateParts(const ExecutorOptions& options) {
  const bool cpu_tier = parts_.kv->layout(Tier::kCpu).num_blocks > 0;
  const bool riders = options.max_rider_rows > 0;
  const Shard shard = parts_.decoder->shard();
  TANDEM_ASSIGN_OR_RETURN(
      lanes_, Lanes::Create(parts_.device, parts_.num_layers(), {.cpu_tier = cpu_tier, .riders = riders},
                            options.timeline, shard));
  parts_.lanes = lanes_.get();
  if (!shard.is_whole()) {
    stamped_exchange_ = std::make_unique<StampedExchange>(&lanes_->compute().stamps);
    stamped_decoder_ = std::make_unique<Decoder>(parts_.decoder->ObservedBy(stamped_exchange_.get()));
    parts_.decoder = stamped_decoder_.get();
  }
  const int64_t max_sampled = options.max_rows + options.max_cpu_rows + options.max_rider_rows;
  TANDEM_ASSIGN_OR_RETURN(logits_stage_, LogitsStage::Create(parts_.device, parts_.decoder, parts_.ops,
                                                             max_sampled, LogitsSliceRows(options)));
  parts_.logits_stage = logits_stage_.get();
  if (cpu_tier) {
    CpuAttentionOptions cpu_options = options.cpu_attention;
    cpu_options.timeline = options.timeline;
    cpu_options.timeline_lane = LaneOfShard(cpu_options.timeline_lane, shard.rank, shard.size);
    cpu_attention_ = std::make_unique<CpuAttention>(cpu_options);
    parts_.cpu_attention = cpu_attention_.get();
    TANDEM_ASSIGN_OR_RETURN(
        transit_slots_,
        TransitSlots::Create(parts_.device, parts_.kv->layout(Tier::kGpu).shape, options.max_transit_tokens));
    parts_.transit_slots = transit_slots_.get();
    TANDEM_ASSIGN_OR_RETURN(flight_, CohortFlight::Create(parts_, options));
  }
  if (riders) {
    TANDEM_ASSIGN_OR_RETURN(riding_,
                            RidingPass::Create(parts_, options.max_rider_rows, options.max_flight_rows));
    cpu_attention_->WatchProgress(riding_->progress());
  }
  TANDEM_ASSIGN_OR_RETURN(main_, MainPass::Create(parts_, options, riding_.get()));
  return {};
}

size_t Executor::BytesFor(const Decoder& decoder, const ExecutorOptions& options, const KvShape* cpu_tier) {
  const ExecutorOptions complete = options.Complete(cpu_tier != nullptr);
  const size_t bytes = MainPass::BytesFor(decoder, complete) + LogitsBytesFor(decoder, complete);
  if (cpu_tier == nullptr) return bytes;
  return bytes + CohortFlight::BytesFor(decoder, complete) +
         TransitSlots::BytesFor(*cpu_tier, complete.max_transit_tokens);
}

size_t Executor::LogitsBytesFor(const Decoder& decoder, const ExecutorOptions& options) {
  return LogitsStage::BytesFor(decoder, LogitsSliceRows(options));
}

void Executor::WarmUp() {
  main_->WarmUp();
}

MeasurementParts Executor::measurement_parts() {
  return {.compute = &parts_.compute_stream(),
          .copy = &parts_.copy_stream(),
          .rows = &main_->row_buffers(),
          .plan = main_->attention_plan(),
          .logits = logits_stage_.get()};
}

void Executor::BeginMoves(const IterationInput& input) {
  lanes_->BeginMoves();
  Lane& copy = lanes_->copy();
  moves_.Begin(input.moves, *copy.stream);
  if (moves_.any()) copy.stamps.Detail(*copy.stream, "moves between tiers");
}

bool Executor::MayReplay(const IterationInput& input) const {
  const IterationPlan& plan = input.plan;
  // A graph leaves out what embeddings need.
  if (AnyPools(input.main) || std::ranges::any_of(input.cohorts, AnyPools)) return false;
  const bool own_visits = std::any_of(plan.cohorts.begin(), plan.cohorts.end(), [](const CohortStep& step) {
    return !step.rides && !step.visits.empty();
  });
  return !own_visits && !moves_.any();
}

bool Executor::MayRunAhead() const {
  return running_.size() == 1 && running_.front()->may_be_followed && !lanes_->timeline_wanted();
}

bool Executor::IsOnComputeStreamAlone(const IterationInput& input) {
  return input.plan.gpu_rows_only() && input.moves.empty() && input.masks_ready == nullptr &&
         !AnyPools(input.main);
}

Status Executor::Start(IterationInput input) {
  TANDEM_RETURN_IF_ERROR(Enter(&input));
  Run(std::move(input));
  return {};
}

Status Executor::Enter(IterationInput* input) {
  TANDEM_CHECK(running_.empty() || (IsOnComputeStreamAlone(*input) && MayRunAhead()),
               "an iteration is running already");
  TANDEM_CHECK(!stalled_ || (!input->plan.main.attends_on_cpu() && input->plan.cohorts.empty()),
               "a plan for the cpu tier while CPU attention is stalled");
  TANDEM_CHECK(flight_ != nullptr || input->plan.cohorts.empty(), "a cohort without a cpu tier");
  if (running_.empty()) {
    BeginMoves(*input);
  } else {
    FindTokensToCome(running_.front()->input.plan, running_.front()->main, input);
  }
  if (!flight_) return {};
  Status entered = flight_->Enter(input);
  // Of those before it the uploads may still run.
  if (!entered.ok()) parts_.compute_stream().Synchronize();
  return entered;
}

void Executor::Run(IterationInput input) {
  const bool alone = IsOnComputeStreamAlone(input);
  Stream& stream = parts_.compute_stream();
  const StreamRange range(stream, "iteration");
  auto running = std::make_unique<RunningIteration>();
  running->input = std::move(input);
  if (cpu_attention_) running->cpu_attention_before = cpu_attention_->stats();
  const IterationPlan& plan = running->input.plan;
  if (flight_) {
    std::vector<Rider> riders = flight_->RidersOf(plan);
    TANDEM_CHECK(riding_ != nullptr || riders.empty(), "{} cohorts ride without room for riders",
                 riders.size());
    if (riding_) riding_->Begin(std::move(riders));
  }
  logits_stage_->BeginIteration(running->input.masks_ready);
  running->main =
      main_->Prepare(&running->input, MayReplay(running->input), flight_ ? flight_->num_transit_blocks() : 0);
  lanes_->Begin();
  if (running->main.graph.empty()) {
    WalkLayers(running.get());
  } else {
    Replay(running.get());
  }
  if (riding_) riding_->End();
  moves_.End();
  running->time = lanes_->compute().stamps.time();
  running->may_be_followed = alone && lanes_->stamps_alternate();
  running->end = ends_[next_end_].get();
  next_end_ ^= 1U;
  stream.Record(*running->end);
  running_.push_back(std::move(running));
  ended_.reset();
}

void Executor::Replay(RunningIteration* running) {
  Lane& compute = lanes_->compute();
  MainRows& main = running->main;
  main_->PlanAttention(main);
  main_->Replay(main);
  // Recorded while nobody watched.
  if (compute.stamps.labels().empty()) compute.stamps.Detail(*compute.stream, "graph of decodes");
  if (riding_) riding_->SubmitAttention(parts_.num_layers() - 1);
  logits_stage_->SampleFrom(*compute.stream, main.graph.total_rows(), &main.logits);
  compute.stamps.Mark(*compute.stream, "sampling");
}

void Executor::PrepareLogits(RunningIteration* running) {
  logits_stage_->Prepare(&running->main.logits);
  if (flight_) {
    running->visits = flight_->PrepareVisits(running->input, main_->row_buffers(), running->main.num_rows());
  }
  logits_stage_->Upload(parts_.compute_stream());
}

void Executor::WalkLayers(RunningIteration* running) {
  Lane& compute = lanes_->compute();
  const int64_t num_layers = parts_.num_layers();
  for (int64_t boundary = kEntry; boundary < num_layers; ++boundary) {
    const int64_t next_layer = boundary + 1;
    if (next_layer < num_layers) moves_.AwaitLayer(next_layer, *compute.stream);
    main_->PassBoundary(boundary, &running->main);
    if (boundary == kEntry) {
      // The device is at work meanwhile.
      main_->PlanAttention(running->main);
      PrepareLogits(running);
    }
    if (flight_) flight_->VisitAt(boundary, running->input.plan, &running->visits);
    if (next_layer < num_layers) main_->Attend(next_layer, running->main);
    // Between the layers: all cohorts at once take longer than the device takes for its first layer.
    if (riding_) riding_->SubmitAttention(boundary);
  }
  compute.stamps.Mark(*compute.stream, "end");
}

bool Executor::EndsWithin(std::chrono::microseconds time) {
  return running_.front()->end->SynchronizeFor(time);
}

StallWatch::Look Executor::LookAtOldest() {
  if (!cpu_attention_) return {};
  const RunningIteration& running = *running_.front();
  const bool owes_output =
      (running.main.num_cpu_rows > 0 && main_->OwesOutput()) ||
      std::any_of(running.visits.begin(), running.visits.end(), [](const OwnVisits& visits) {
        return visits.cohort != nullptr && visits.cohort->cpu_rows->OwesOutput();
      });
  return {.num_tasks = cpu_attention_->stats().num_tasks, .owes_output = owes_output};
}

bool Executor::AwaitOldest() {
  const RunningIteration& running = *running_.front();
  if (running.main.num_cpu_rows == 0 && running.visits.empty()) return true;
  const std::chrono::microseconds pace = cohort_watch_.longest_look();
  return cohort_watch_.Await(
      {.first = pace, .slowest = pace}, [this](std::chrono::microseconds time) { return EndsWithin(time); },
      [this] { return LookAtOldest(); });
}

bool Executor::CohortsStalled(std::chrono::nanoseconds iteration) {
  return flight_ != nullptr &&
         cohort_watch_.Stalled(iteration, {.num_tasks = cpu_attention_->stats().num_tasks,
                                           .owes_output = flight_->OwesOutput()});
}

IterationResult Executor::Finish() {
  TANDEM_CHECK(!running_.empty(), "no iteration is running");
  bool stalled = !AwaitOldest();
  if (stalled) AbortOldest();
  if (CompleteOldest(stalled)) {
    stalled = true;
    AbortCohorts();
  }
  return CollectOldest(stalled);
}

void Executor::AbortOldest() {
  AbortCpuRows(running_.front()->main.num_cpu_rows > 0);
}

bool Executor::CompleteOldest(bool stalled) {
  const RunningIteration& running = *running_.front();
  if (running_.size() == 1) {
    lanes_->Synchronize();
    lanes_->AddToTimeline();
  } else {
    parts_.compute_stream().SynchronizeTo(*running.end);
  }
  return !stalled &&
         CohortsStalled(std::chrono::nanoseconds(running.time.end_ns() - running.time.begin_ns()));
}

IterationResult Executor::CollectOldest(bool stalled) {
  std::unique_ptr<RunningIteration> running = std::move(running_.front());
  running_.pop_front();
  IterationResult result;
  result.stalled = stalled;
  if (cpu_attention_) result.cpu_attention = Since(cpu_attention_->stats(), running->cpu_attention_before);
  result.device_begin_ns = running->time.begin_ns();
  result.device_end_ns = running->time.end_ns();
  result.as_graph = !running->main.graph.empty();
  CollectResults(running->input, result.stalled, &running->main, &result.sequences);
  CollectCohorts(running.get(), &result);
  CollectPooled(*running, &result);
  ended_ = std::move(running);
  return result;
}

void Executor::CollectPooled(const RunningIteration& running, IterationResult* result) const {
  const PoolingStage& pooling = logits_stage_->pooling();
  pooling.Collect(running.main.logits.pooling, &result->sequences);
  for (const OwnVisits& visits : running.visits) pooling.Collect(visits.logits.pooling, &result->sequences);
}

void Executor::CollectCohorts(RunningIteration* running, IterationResult* result) {
  const IterationPlan& plan = running->input.plan;
  if (result->stalled) {
    for (const CohortStep& step : plan.cohorts) result->cohorts.push_back({.cohort = step.cohort});
    std::vector<SequenceResult> failed = AbandonCohorts();
    result->sequences.insert(result->sequences.end(), failed.begin(), failed.end());
    return;
  }
  if (!flight_) return;
  std::vector<CohortOutcome> outcomes(plan.cohorts.size());
  if (riding_) {
    riding_->Collect(std::span(running->main.logits.results).subspan(running->main.first_rider_result),
                     &outcomes);
  }
  CohortFlight::CollectVisits(plan, &running->visits, &outcomes);
  flight_->Collect(running->input, &running->visits, outcomes, result);
}

void Executor::AbortCpuRows(bool main) {
  stalled_ = true;
  if (main) main_->AbortCpuRows();
  flight_->Abort();
}

std::vector<SequenceResult> Executor::AbandonCohorts() {
  std::vector<SequenceResult> failed = flight_->Abandon();
  if (riding_) riding_->Clear();
  cohort_watch_.Forgive();
  return failed;
}

bool Executor::DropCohort(CohortId id) {
  TANDEM_CHECK(running_.empty(), "cohort {} dropped amid an iteration", id);
  if (!flight_ || flight_->Drop(id, cohort_watch_)) return true;
  FailCohorts();
  return false;
}

void Executor::FailCohorts() {
  AbortCohorts();
  AbandonCohorts();
}

bool Executor::CpuTierUsable() {
  if (!stalled_) return true;
  if (!cpu_attention_->idle()) return false;
  main_->ResetCpuRows();
  flight_->Restore();
  stalled_ = false;
  return true;
}

}  // namespace tandem
