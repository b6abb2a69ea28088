#include "ops/host/riders/riders.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/row_tasks.h"

namespace tandem {
namespace {

void CopyRow(const MatrixView& from, int64_t from_row, const MatrixView& to, int64_t to_row) {
  std::memcpy(to.RowData(to_row), from.RowData(from_row),
              static_cast<size_t>(from.cols) * DTypeSize(from.dtype));
}

const HostRiderPlan& PlanOf(const RiderPlan& plan) {
  const auto* host_plan = dynamic_cast<const HostRiderPlan*>(&plan);
  TANDEM_CHECK(host_plan != nullptr, "riders: not a plan of the host backend");
  return *host_plan;
}

HostRiderPlan& PlanOf(RiderPlan* plan) {
  auto* host_plan = dynamic_cast<HostRiderPlan*>(plan);
  TANDEM_CHECK(host_plan != nullptr, "riders: not a plan of the host backend");
  return *host_plan;
}

}  // namespace

HostRiderPlan::HostRiderPlan(const RiderCapacity& capacity)
    : capacity_(capacity), run_(std::make_unique<RunState>()) {}

bool HostRiderPlan::joined(int64_t group) const {
  TANDEM_CHECK(group >= 0 && group < static_cast<int64_t>(collected_.size()), "rider group {} of {}", group,
               collected_.size());
  return collected_[static_cast<size_t>(group)] != 0;
}

void HostRiderPlan::Set(std::span<const RiderGroup> groups, int64_t first_pass) {
  CheckRiderGroups(groups, capacity_);
  groups_.assign(groups.begin(), groups.end());
  row_begins_.clear();
  run_->joins.clear();
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool first = i == 0 || groups[i - 1].boundary != groups[i].boundary;
    row_begins_.push_back(first ? 0 : row_begins_.back() + groups[i - 1].residual.rows);
    run_->joins.push_back(groups[i].boundary == -1 ? 1 : 0);
  }
  first_pass_ = first_pass;
}

HostRiderPlan::GroupRange HostRiderPlan::GroupsAt(int64_t boundary) const {
  const auto [begin, end] =
      std::equal_range(groups_.begin(), groups_.end(), RiderGroup{.boundary = boundary},
                       [](const RiderGroup& a, const RiderGroup& b) { return a.boundary < b.boundary; });
  return {begin - groups_.begin(), end - groups_.begin()};
}

template <typename Body>
void HostRiderPlan::ForEachJoined(ComputePool& pool, const RiderArgs& args, const Body& body) const {
  const GroupRange range = GroupsAt(args.boundary);
  for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) {
    const RiderGroup& group = groups_[i];
    const int64_t num_rows = group.residual.rows;
    TANDEM_CHECK(row_begins_[i] + num_rows <= args.num_rows, "riders at boundary {}: rows [{}, +{}) of {}",
                 args.boundary, row_begins_[i], num_rows, args.num_rows);
    if (run_->joins[i] == 0) continue;
    ForEachRow(pool, num_rows, capacity_.hidden + capacity_.qkv_width,
               [&](int64_t row) { body(group, row, args.row_begin + row_begins_[i] + row); });
  }
}

std::span<int32_t> HostRiderPlan::DecisionsAt(int64_t boundary) const {
  const GroupRange range = GroupsAt(boundary);
  return std::span(run_->joins)
      .subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin));
}

void HostRiderPlan::Decide(int64_t boundary) const {
  const GroupRange range = GroupsAt(boundary);
  for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) {
    const RiderGroup& group = groups_[i];
    const bool done = group.done->value() >= group.done_value && !group.done->aborted();
    run_->joins[i] = done ? 1 : 0;
  }
}

void HostRiderPlan::Gather(ComputePool& pool, const RiderArgs& args) const {
  const bool enters = args.boundary == -1;
  if (!enters && !capacity_.decided_ahead) Decide(args.boundary);
  ForEachJoined(pool, args, [&](const RiderGroup& group, int64_t row, int64_t args_row) {
    args.positions[args_row] = group.positions[row];
    if (enters) return;
    CopyRow(group.residual, row, args.residual, args_row);
    CopyRow(group.attention_out, row, args.attention_out, args_row);
  });
}

void HostRiderPlan::Scatter(ComputePool& pool, const RiderArgs& args) const {
  run_->progress.store(first_pass_ + args.boundary + 1, std::memory_order_release);
  const bool leaves = args.boundary == capacity_.num_boundaries - 2;
  ForEachJoined(pool, args, [&](const RiderGroup& group, int64_t row, int64_t args_row) {
    CopyRow(args.residual, args_row, group.residual, row);
    if (!leaves) CopyRow(args.qkv, args_row, group.qkv, row);
  });
  if (leaves) return;
  const GroupRange range = GroupsAt(args.boundary);
  for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) {
    if (run_->joins[i] != 0) groups_[i].ready->Set(groups_[i].ready_value);
  }
}

Result<std::unique_ptr<RiderPlan>> HostOps::CreateRiderPlan(const RiderCapacity& capacity) {
  return std::unique_ptr<RiderPlan>(std::make_unique<HostRiderPlan>(capacity));
}

void HostOps::PlanRiders(Stream& /*stream*/, std::span<const RiderGroup> groups, int64_t first_pass,
                         RiderPlan* plan) {
  PlanOf(plan).Set(groups, first_pass);
}

std::span<int32_t> HostOps::DecideRiders(Stream& stream, const RiderPlan& plan, int64_t boundary) {
  const HostRiderPlan& host_plan = PlanOf(plan);
  TANDEM_CHECK(host_plan.capacity().decided_ahead && boundary >= 0, "riders: decided ahead at boundary {}",
               boundary);
  AsHostStream(stream).Enqueue([boundary, &host_plan](ComputePool&) { host_plan.Decide(boundary); });
  return host_plan.DecisionsAt(boundary);
}

void HostOps::GatherRiders(Stream& stream, const RiderPlan& plan, const RiderArgs& args) {
  const HostRiderPlan& host_plan = PlanOf(plan);
  CheckRiderGather(args, host_plan.capacity());
  AsHostStream(stream).Enqueue([args, &host_plan](ComputePool& pool) { host_plan.Gather(pool, args); });
}

void HostOps::ScatterRiders(Stream& stream, const RiderPlan& plan, const RiderArgs& args) {
  const HostRiderPlan& host_plan = PlanOf(plan);
  CheckRiderScatter(args, host_plan.capacity());
  AsHostStream(stream).Enqueue([args, &host_plan](ComputePool& pool) { host_plan.Scatter(pool, args); });
}

void HostOps::CollectRiders(Stream& stream, RiderPlan* plan) {
  HostRiderPlan& host_plan = PlanOf(plan);
  AsHostStream(stream).Enqueue([&host_plan](ComputePool&) { host_plan.Collect(); });
}

}  // namespace tandem
