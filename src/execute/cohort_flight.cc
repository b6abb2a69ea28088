#include "execute/cohort_flight.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

// Staggered over all boundaries, if cohorts can ride.
int64_t UsualCohorts(const ExecutorOptions& options, const Decoder& decoder) {
  return options.max_rider_rows > 0 ? decoder.config().num_layers + 1 : 1;
}

}  // namespace

CohortFlight::CohortFlight(const SharedParts& parts, const ExecutorOptions& options)
    : parts_(parts), pool_(parts, options.max_flight_rows, UsualCohorts(options, *parts.decoder)) {}

Result<std::unique_ptr<CohortFlight>> CohortFlight::Create(const SharedParts& parts,
                                                           const ExecutorOptions& options) {
  auto flight = std::unique_ptr<CohortFlight>(new CohortFlight(parts, options));
  // So that the memory of the usual cohorts is there before the first iteration.
  TANDEM_RETURN_IF_ERROR(flight->pool_.Fill(UsualCohorts(options, *parts.decoder)));
  TANDEM_ASSIGN_OR_RETURN(flight->buffers_,
                          RowBuffers::Allocate(parts.device, *parts.decoder, options.max_cpu_rows));
  TANDEM_ASSIGN_OR_RETURN(flight->transit_, TransitCohort::Create(parts, options));
  return flight;
}

size_t CohortFlight::BytesFor(const Decoder& decoder, const ExecutorOptions& options) {
  return RowBuffers::BytesFor(decoder, options.max_cpu_rows) +
         CohortPool::BytesFor(decoder, options.max_flight_rows, UsualCohorts(options, decoder)) +
         TransitCohort::BytesFor(decoder, options);
}

Status CohortFlight::Enter(IterationInput* input) {
  const IterationPlan& plan = input->plan;
  for (const CohortId id : plan.dropped) {
    const bool is_there = cohorts_.contains(id) || (transit_->in_flight() && transit_->id() == id);
    TANDEM_CHECK(!is_there, "cohort {} was to be dropped before", id);
  }
  TANDEM_CHECK(plan.cohorts.size() == input->cohorts.size(), "{} cohorts with the inputs of {}",
               plan.cohorts.size(), input->cohorts.size());
  for (size_t i = 0; i < plan.cohorts.size(); ++i) {
    const CohortStep& step = plan.cohorts[i];
    if (step.in_transit()) {
      EnterTransit(step, input->cohorts[i]);
      continue;
    }
    const auto found = cohorts_.find(step.cohort);
    if (found != cohorts_.end()) {
      TANDEM_CHECK(found->second->cursor == step.cursor && found->second->rows == step.rows,
                   "cohort {} is at layer {}, the plan says {} or names other rows", step.cohort,
                   found->second->cursor, step.cursor);
      continue;
    }
    TANDEM_CHECK(step.cursor == kEntry, "cohort {} is unknown at layer {}", step.cohort, step.cursor);
    if (step.visits.empty()) continue;
    TANDEM_ASSIGN_OR_RETURN(auto cohort, pool_.Take(static_cast<int64_t>(step.rows.size())));
    cohort->Begin(step.rows, input->cohorts[i]);
    cohort->inputs.Upload(parts_.compute_stream());
    cohorts_.emplace(step.cohort, std::move(cohort));
  }
  return {};
}

void CohortFlight::EnterTransit(const CohortStep& step, const std::vector<SpanInput>& inputs) {
  if (transit_->in_flight() && transit_->id() == step.cohort) {
    TANDEM_CHECK(transit_->cursor() == step.cursor && transit_->rows() == step.rows,
                 "cohort {} is at layer {}, the plan says {} or names other rows", step.cohort,
                 transit_->cursor(), step.cursor);
    return;
  }
  TANDEM_CHECK(step.cursor == kEntry, "cohort {} is unknown at layer {}", step.cohort, step.cursor);
  if (!step.visits.empty()) transit_->Enter(step, inputs);
}

std::vector<Rider> CohortFlight::RidersOf(const IterationPlan& plan) const {
  std::vector<Rider> riders;
  for (size_t i = 0; i < plan.cohorts.size(); ++i) {
    const CohortStep& step = plan.cohorts[i];
    if (!step.rides) continue;
    const bool one_visit = step.visits.size() == 1 && step.visits[0] == Visit{step.cursor, step.cursor};
    TANDEM_CHECK(one_visit && !plan.main.empty(), "cohort {} cannot ride: {} visits at layer {}", step.cohort,
                 step.visits.size(), step.cursor);
    riders.push_back({.step = i, .cohort = cohorts_.at(step.cohort).get()});
  }
  return riders;
}

std::vector<OwnVisits> CohortFlight::PrepareVisits(const IterationInput& input,
                                                   const RowBuffers& main_buffers, int64_t num_main_rows) {
  std::vector<OwnVisits> all;
  int64_t num_rows = 0;
  for (size_t i = 0; i < input.plan.cohorts.size(); ++i) {
    const CohortStep& step = input.plan.cohorts[i];
    if (step.rides || step.visits.empty()) continue;
    if (step.in_transit()) {
      OwnVisits& visits = all.emplace_back(OwnVisits{.step = i});
      const bool ends = step.visits.back().layer == parts_.num_layers() - 1;
      transit_->Prepare(step, ends ? input.cohorts[i] : std::vector<SpanInput>(), main_buffers, num_main_rows,
                        &visits.logits);
      continue;
    }
    OwnVisits& visits = all.emplace_back(OwnVisits{.step = i, .cohort = cohorts_.at(step.cohort).get()});
    visits.cohort->BorrowActivations(buffers_, num_rows);
    num_rows += static_cast<int64_t>(step.rows.size());
    if (step.visits.back().layer != parts_.num_layers() - 1) continue;
    const std::vector<SpanInput>& inputs = input.cohorts[i];
    TANDEM_CHECK(inputs.size() == step.rows.size(), "cohort {} of {} rows ends with the inputs of {}",
                 step.cohort, step.rows.size(), inputs.size());
    for (size_t row = 0; row < inputs.size(); ++row)
      visits.logits.AddSpan(static_cast<int32_t>(row), step.rows[row], inputs[row]);
    parts_.logits_stage->Prepare(&visits.logits);
  }
  return all;
}

void CohortFlight::VisitAt(int64_t boundary, const IterationPlan& plan, std::vector<OwnVisits>* visits) {
  for (OwnVisits& each : *visits) {
    const std::vector<Visit>& planned = plan.cohorts[each.step].visits;
    if (each.num_made == planned.size() || planned[each.num_made].boundary != boundary) continue;
    const Visit& visit = planned[each.num_made++];
    if (each.cohort == nullptr) {
      transit_->MakeVisit(visit, each.num_made == planned.size(), &each.logits);
    } else {
      MakeVisit(visit, &each);
    }
  }
}

void CohortFlight::MakeVisit(const Visit& visit, OwnVisits* visits) {
  Cohort& cohort = *visits->cohort;
  TANDEM_CHECK(visit.layer == cohort.cursor, "visit of layer {}, cursor at {}", visit.layer, cohort.cursor);
  Stream& stream = parts_.compute_stream();
  IterationStamps& stamps = parts_.lanes->compute().stamps;
  const StreamRange range(stream, "visit of a cohort");
  RowBatch* rows = &*cohort.batch;
  if (visit.layer == kEntry) {
    parts_.decoder->Embed(stream, rows);
  } else {
    cohort.cpu_rows->AwaitOutput(visit.layer, *rows, 0);
    stamps.Detail(stream, "wait for cpu attention", visit.layer);
    parts_.decoder->PostProjection(stream, visit.layer, rows);
  }
  cohort.Advance(parts_.num_layers());
  if (cohort.cursor == kEntry) {
    parts_.logits_stage->Run(stream, rows, &visits->logits);
  } else {
    // Appends nothing to the gpu tier: these rows' KV lives on the CPU.
    parts_.decoder->PreProjection(stream, cohort.cursor, {}, rows);
    cohort.cpu_rows->Attend(cohort.cursor, *rows, 0);
  }
  stamps.Detail(stream, "visit of a cohort", visit.layer);
}

void CohortFlight::CollectVisits(const IterationPlan& plan, std::vector<OwnVisits>* visits,
                                 std::vector<CohortOutcome>* outcomes) {
  for (OwnVisits& each : *visits) {
    (*outcomes)[each.step] = {.num_visits = static_cast<int64_t>(plan.cohorts[each.step].visits.size()),
                              .tokens = each.logits.results};
  }
}

void CohortFlight::Collect(const IterationInput& input, std::vector<OwnVisits>* visits,
                           const std::vector<CohortOutcome>& outcomes, IterationResult* result) {
  const IterationPlan& plan = input.plan;
  for (size_t s = 0; s < plan.cohorts.size(); ++s) {
    const CohortStep& step = plan.cohorts[s];
    CohortProgress& progress = result->cohorts.emplace_back();
    progress.cohort = step.cohort;
    progress.cursor = step.cursor;
    progress.num_visits = outcomes[s].num_visits;
    if (progress.num_visits == 0) continue;
    progress.cursor = step.in_transit() ? transit_->cursor() : cohorts_.at(step.cohort)->cursor;
    if (progress.cursor != kEntry) continue;
    if (step.in_transit()) {
      const auto own = std::ranges::find(*visits, s, &OwnVisits::step);
      transit_->Collect(input.cohorts[s], &own->logits, &result->sequences);
      transit_->Forget();
      continue;
    }
    for (size_t i = 0; i < step.rows.size(); ++i) {
      SequenceResult& sequence = result->sequences.emplace_back();
      sequence.sequence = step.rows[i].sequence;
      sequence.num_computed = step.rows[i].end();
      sequence.tokens.push_back(std::move(outcomes[s].tokens[i]));
    }
    Forget(step.cohort);
  }
}

void CohortFlight::Forget(CohortId id) {
  const auto found = cohorts_.find(id);
  pool_.GiveBack(std::move(found->second));
  cohorts_.erase(found);
}

bool CohortFlight::OwesOutput() const {
  return std::any_of(cohorts_.begin(), cohorts_.end(),
                     [](const auto& entry) { return entry.second->cpu_rows->OwesOutput(); });
}

bool CohortFlight::Drop(CohortId id, const StallWatch& watch) {
  if (transit_->in_flight() && transit_->id() == id) {
    transit_->Forget();
    return true;
  }
  const auto found = cohorts_.find(id);
  if (found == cohorts_.end()) return true;
  CpuTierRows& rows = *found->second->cpu_rows;
  const auto await = [&](const auto& done) {
    constexpr StallWatch::Pace kNaps = {std::chrono::microseconds(20), std::chrono::microseconds(1000)};
    const auto nap_unless_done = [&](std::chrono::microseconds nap) {
      if (done()) return true;
      std::this_thread::sleep_for(nap);
      return false;
    };
    return watch.Await(kNaps, nap_unless_done, [&] {
      return StallWatch::Look{.num_tasks = parts_.cpu_attention->stats().num_tasks, .owes_output = true};
    });
  };
  // What the device has armed is computed, and first: the GPU rests meanwhile, and behind what other cohorts
  // have armed that could be a layer of the whole tier. What it has not armed, it never will.
  parts_.cpu_attention->Hurry(rows.ready());
  if (!await([&] { return !rows.OwesOutput(); })) return false;
  rows.Withdraw();
  if (!await([&] { return rows.withdrawn(); })) return false;
  rows.EndWithdraw();
  Forget(id);
  return true;
}

void CohortFlight::Abort() {
  for (auto& [id, cohort] : cohorts_) cohort->cpu_rows->Abort();
}

std::vector<SequenceResult> CohortFlight::Abandon() {
  std::vector<SequenceResult> failed;
  for (auto& [id, cohort] : cohorts_) {
    for (const RowSpan& row : cohort->rows)
      failed.push_back({.sequence = row.sequence, .num_computed = row.start, .failed = true});
    abandoned_.push_back(std::move(cohort));
  }
  cohorts_.clear();
  for (const RowSpan& span : transit_->rows())
    failed.push_back({.sequence = span.sequence, .num_computed = span.start, .failed = true});
  transit_->Forget();
  return failed;
}

void CohortFlight::Restore() {
  for (auto& cohort : abandoned_) {
    cohort->cpu_rows->Reset();
    pool_.GiveBack(std::move(cohort));
  }
  abandoned_.clear();
}

}  // namespace tandem
