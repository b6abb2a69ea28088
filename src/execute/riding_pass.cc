#include "execute/riding_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/round_up.h"

namespace tandem {

RidingPass::RidingPass(const SharedParts& parts)
    : parts_(parts),
      num_layers_(parts.num_layers()),
      passed_(parts.device->CreateEvent()),
      exchanged_(parts.device->CreateEvent()) {
  Clear();
}

Result<std::unique_ptr<RidingPass>> RidingPass::Create(const SharedParts& parts, int64_t max_rows,
                                                       int64_t max_cohorts) {
  auto riding = std::unique_ptr<RidingPass>(new RidingPass(parts));
  const ModelConfig& config = parts.decoder->config();
  TANDEM_ASSIGN_OR_RETURN(riding->plan_,
                          parts.ops->CreateRiderPlan({.num_boundaries = config.num_layers + 1,
                                                      .max_rows = max_rows,
                                                      .max_groups = max_cohorts,
                                                      .hidden = config.hidden_size,
                                                      .q_width = config.q_width(),
                                                      .qkv_width = config.qkv_width(),
                                                      .dtype = parts.decoder->dtype(),
                                                      .product_dtype = parts.decoder->product_dtype(),
                                                      .decided_ahead = parts.rider_collective != nullptr}));
  return riding;
}

void RidingPass::Clear() {
  riders_.clear();
  num_submitted_ = 0;
  num_rows_.assign(static_cast<size_t>(num_layers_ + 1), 0);
}

int64_t RidingPass::MostRows() const {
  return *std::max_element(num_rows_.begin(), num_rows_.end());
}

int64_t RidingPass::MeanRows() const {
  return DivideUp(std::accumulate(num_rows_.begin(), num_rows_.end(), int64_t{0}), num_layers_ + 1);
}

RiderGroup RidingPass::GroupOf(const Cohort& cohort) const {
  const CpuTierRows& rows = *cohort.cpu_rows;
  RiderGroup group;
  group.boundary = cohort.cursor;
  group.residual = cohort.residual;
  group.positions = cohort.positions;
  if (cohort.cursor != kEntry) {
    group.attention_out = rows.attention_out();
    group.done = rows.done();
    group.done_value = rows.ValueOf(cohort.cursor);
  }
  const int64_t next_layer = cohort.cursor + 1;
  if (next_layer < num_layers_) {
    group.qkv = rows.qkv();
    group.ready = rows.ready();
    group.ready_value = rows.ValueOf(next_layer);
  }
  return group;
}

void RidingPass::Begin(std::vector<Rider> riders) {
  Clear();
  if (riders.empty()) return;
  riders_ = std::move(riders);
  std::stable_sort(riders_.begin(), riders_.end(),
                   [](const Rider& a, const Rider& b) { return a.cohort->cursor < b.cohort->cursor; });
  const int64_t first_pass = num_iterations_++ * (num_layers_ + 1);
  std::vector<RiderGroup> groups;
  groups.reserve(riders_.size());
  for (const Rider& rider : riders_) {
    const Cohort& cohort = *rider.cohort;
    num_rows_[static_cast<size_t>(cohort.cursor + 1)] += static_cast<int64_t>(cohort.rows.size());
    groups.push_back(GroupOf(cohort));
  }
  parts_.ops->PlanRiders(parts_.compute_stream(), groups, first_pass, plan_.get());
}

void RidingPass::SubmitAttention(int64_t boundary) {
  const int64_t period = num_layers_ + 1;
  for (; num_submitted_ < riders_.size(); ++num_submitted_) {
    Cohort& cohort = *riders_[num_submitted_].cohort;
    if (cohort.cursor > boundary) return;
    // Boundary b is pass b + 1 of an iteration; the layer is wanted at the boundary of its number, in the
    // iteration that follows this one.
    const int64_t next_layer = cohort.cursor + 1;
    if (next_layer < num_layers_)
      cohort.cpu_rows->Submit(next_layer, num_iterations_ * period + next_layer + 1, period);
  }
}

void RidingPass::Exchange(int64_t boundary, const Rows& rows, const RowBatch& batch) {
  // With several cohorts CPU attention goes by how far the device is, also where none of them joins.
  const bool tells = rows.here > 0 || riders_.size() > 1;
  const bool gathers = rows.next > 0 && boundary + 1 < num_layers_;
  if (!tells && !gathers) return;
  const StreamRange range(stream(), "riders");
  IterationStamps& stamps = parts_.lanes->riders().stamps;
  parts_.compute_stream().Record(*passed_);
  stream().Wait(*passed_);
  stamps.Detail(stream(), {});
  RiderArgs args = {.boundary = boundary,
                    .row_begin = rows.row_begin,
                    .num_rows = rows.here,
                    .residual = batch.residual,
                    .attention_out = {},
                    .qkv = batch.qkv,
                    .positions = rows.positions};
  if (tells) {
    parts_.ops->ScatterRiders(stream(), *plan_, args);
    stamps.Detail(stream(), "riders leave", boundary);
  }
  if (!gathers) return;
  if (parts_.rider_collective != nullptr) {
    const std::span<int32_t> joins = parts_.ops->DecideRiders(stream(), *plan_, boundary + 1);
    if (!joins.empty()) parts_.rider_collective->Min(stream(), joins);
  }
  const int64_t num_rows = rows.row_begin + rows.next;
  args.boundary = boundary + 1;
  args.num_rows = rows.next;
  args.residual.rows = num_rows;
  args.attention_out = batch.attention_out;
  args.attention_out.rows = num_rows;
  args.qkv = {};
  parts_.ops->GatherRiders(stream(), *plan_, args);
  stamps.Detail(stream(), "riders join", boundary + 1);
}

void RidingPass::Await() {
  stream().Record(*exchanged_);
  parts_.compute_stream().Wait(*exchanged_);
}

void RidingPass::End() {
  if (riders_.empty()) return;
  Await();
  parts_.ops->CollectRiders(parts_.compute_stream(), plan_.get());
}

void RidingPass::Collect(std::span<SampledToken> results, std::vector<CohortOutcome>* outcomes) {
  for (size_t i = 0; i < riders_.size(); ++i) {
    Cohort& cohort = *riders_[i].cohort;
    const size_t num_results = cohort.ends_next(num_layers_) ? cohort.rows.size() : 0;
    if (plan_->joined(static_cast<int64_t>(i))) {
      (*outcomes)[riders_[i].step] = {.num_visits = 1, .tokens = results.first(num_results)};
      cohort.Advance(num_layers_);
    }
    results = results.subspan(num_results);
  }
  Clear();
}

}  // namespace tandem
