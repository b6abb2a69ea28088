// The host backend's rider plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/host/compute_pool.h"
#include "ops/riders.h"

namespace tandem {

// Gather, Scatter and Collect run on the stream, in its order, and look at what the plan holds by then.
class HostRiderPlan : public RiderPlan {
 public:
  explicit HostRiderPlan(const RiderCapacity& capacity);

  bool joined(int64_t group) const override;
  const std::atomic<int64_t>* progress() const override { return &run_->progress; }

  void Set(std::span<const RiderGroup> groups, int64_t first_pass);
  const RiderCapacity& capacity() const { return capacity_; }

  // Where the decisions of a boundary's groups lie.
  std::span<int32_t> DecisionsAt(int64_t boundary) const;
  void Decide(int64_t boundary) const;
  void Gather(ComputePool& pool, const RiderArgs& args) const;
  void Scatter(ComputePool& pool, const RiderArgs& args) const;
  void Collect() { collected_ = run_->joins; }

 private:
  // Groups [begin, end) are those of a boundary.
  struct GroupRange {
    int64_t begin = 0;
    int64_t end = 0;
  };
  // What changes while the plan is used; not part of the plan.
  struct RunState {
    std::vector<int32_t> joins;
    std::atomic<int64_t> progress{0};
  };

  GroupRange GroupsAt(int64_t boundary) const;
  // Calls body(group, row of the group, row of args) for the rows of all groups of the boundary that have
  // joined.
  template <typename Body>
  void ForEachJoined(ComputePool& pool, const RiderArgs& args, const Body& body) const;

  RiderCapacity capacity_;
  std::vector<RiderGroup> groups_;
  std::vector<int64_t> row_begins_;  // of each group among those of its boundary
  int64_t first_pass_ = 0;
  std::unique_ptr<RunState> run_;
  std::vector<int32_t> collected_;
};

}  // namespace tandem
