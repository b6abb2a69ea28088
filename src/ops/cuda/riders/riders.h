// The cuda backend's rider plan. All that kernels need to know of an iteration lies in one piece of device
// memory that PlanRiders fills by one copy; the kernels look there for the rows of their boundary.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "ops/riders.h"

namespace tandem {

// Values of a group's decision. Of several shards' the least is what they agree on.
inline constexpr uint32_t kRidersUndecided = 0;
inline constexpr uint32_t kRidersStay = 1;
inline constexpr uint32_t kRidersJoin = 2;

// A RiderGroup as kernels read it. Words of flags and what belongs to the CPU lie in pinned memory.
struct alignas(16) RiderDescriptor {
  std::byte* residual = nullptr;
  const int32_t* positions = nullptr;
  const std::byte* attention_out = nullptr;
  const uint32_t* done = nullptr;
  std::byte* qkv = nullptr;
  uint32_t* ready = nullptr;
  uint32_t done_value = 0;
  uint32_t ready_value = 0;
  int32_t row_begin = 0;  // among the rows of the boundary
  int32_t num_rows = 0;
};

// Addresses within a plan's device memory. The upload of an iteration writes all of it: decisions and
// arrivals begin anew.
struct RiderTables {
  const int64_t* first_pass = nullptr;
  uint32_t* decisions = nullptr;            // of each group
  uint32_t* arrivals = nullptr;             // rows of each group that scatter is done with
  const int32_t* group_begins = nullptr;    // [boundary + 1]; one more for the end
  const RiderDescriptor* groups = nullptr;  // those of a boundary follow each other
  volatile int64_t* progress = nullptr;     // pinned
  bool decided_ahead = false;               // what gather finds in decisions holds
};

// Rows behind the main rows, num_rows each.
struct RiderRows {
  int32_t boundary = 0;
  int32_t num_rows = 0;
  std::byte* residual = nullptr;
  std::byte* attention_out = nullptr;
  std::byte* qkv = nullptr;
  int64_t residual_stride_bytes = 0;
  int64_t attention_out_stride_bytes = 0;
  int64_t qkv_stride_bytes = 0;
  int32_t residual_bytes = 0;  // of a row
  int32_t attention_out_bytes = 0;
  int32_t qkv_bytes = 0;
  int32_t* positions = nullptr;
};

// A launch each, the same for all contents of the tables.
// Of tables that are decided ahead: decisions of the groups at a boundary from 0 on.
void LaunchDecideRiders(CudaStream& stream, const RiderTables& tables, int32_t boundary);
void LaunchGatherRiders(CudaStream& stream, const RiderTables& tables, const RiderRows& rows);
void LaunchScatterRiders(CudaStream& stream, const RiderTables& tables, const RiderRows& rows);

class CudaRiderPlan : public RiderPlan {
 public:
  // Errors: kResourceExhausted.
  static Result<std::unique_ptr<CudaRiderPlan>> Create(Device* device, const RiderCapacity& capacity);

  bool joined(int64_t group) const override;
  const std::atomic<int64_t>* progress() const override { return progress_; }

  void Plan(CudaStream& stream, std::span<const RiderGroup> groups, int64_t first_pass);
  // All groups of the plan, so that a graph serves all its contents: those of other boundaries are decided
  // alike in all shards, or undecided in all.
  std::span<int32_t> Decide(CudaStream& stream, int64_t boundary) const;
  void Gather(CudaStream& stream, const RiderArgs& args) const;
  void Scatter(CudaStream& stream, const RiderArgs& args) const;
  void Collect(CudaStream& stream);

 private:
  explicit CudaRiderPlan(const RiderCapacity& capacity) : capacity_(capacity) {}

  // Offsets in bytes within tables_memory_ and its staging memory.
  size_t decisions_offset() const;
  size_t arrivals_offset() const;
  size_t group_begins_offset() const;
  size_t groups_offset() const;
  RiderRows RowsOf(const RiderArgs& args) const;

  RiderCapacity capacity_;
  Buffer staging_;           // pinned
  Buffer tables_memory_;     // device
  Buffer progress_memory_;   // pinned
  Buffer decisions_memory_;  // pinned
  RiderTables tables_;
  std::atomic<int64_t>* progress_ = nullptr;
  int64_t num_groups_ = 0;
};

}  // namespace tandem
