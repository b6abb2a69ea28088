#include "ops/cuda/riders/riders.h"

#include <new>
#include <utility>

#include "base/check.h"
#include "base/round_up.h"
#include "device/cuda/cuda_sync.h"
#include "ops/cuda/cuda_ops.h"

namespace tandem {
namespace {

constexpr size_t kLineBytes = 64;

// With unified addressing a pinned word has the same address on both sides.
uint32_t* WordOf(Flag* flag) {
  if (flag == nullptr) return nullptr;
  auto* cuda_flag = dynamic_cast<CudaFlag*>(flag);
  TANDEM_CHECK(cuda_flag != nullptr, "riders: a flag that is not of the cuda backend");
  return cuda_flag->word();
}

RiderDescriptor Describe(const RiderGroup& group, int64_t row_begin) {
  RiderDescriptor descriptor;
  descriptor.residual = static_cast<std::byte*>(group.residual.data);
  descriptor.positions = group.positions;
  descriptor.attention_out = static_cast<const std::byte*>(group.attention_out.data);
  descriptor.done = WordOf(group.done);
  descriptor.done_value = group.done_value;
  descriptor.qkv = static_cast<std::byte*>(group.qkv.data);
  descriptor.ready = WordOf(group.ready);
  descriptor.ready_value = group.ready_value;
  descriptor.row_begin = static_cast<int32_t>(row_begin);
  descriptor.num_rows = static_cast<int32_t>(group.residual.rows);
  return descriptor;
}

int64_t StrideBytes(const MatrixView& matrix) {
  return matrix.row_stride * static_cast<int64_t>(DTypeSize(matrix.dtype));
}

std::byte* RowOf(const MatrixView& matrix, int64_t row) {
  return matrix.data == nullptr ? nullptr : static_cast<std::byte*>(matrix.RowData(row));
}

const CudaRiderPlan& PlanOf(const RiderPlan& plan) {
  const auto* cuda = dynamic_cast<const CudaRiderPlan*>(&plan);
  TANDEM_CHECK(cuda != nullptr, "riders: not a plan of the cuda backend");
  return *cuda;
}

CudaRiderPlan& PlanOf(RiderPlan* plan) {
  auto* cuda = dynamic_cast<CudaRiderPlan*>(plan);
  TANDEM_CHECK(cuda != nullptr, "riders: not a plan of the cuda backend");
  return *cuda;
}

}  // namespace

size_t CudaRiderPlan::decisions_offset() const {
  return alignof(RiderDescriptor);
}

size_t CudaRiderPlan::arrivals_offset() const {
  return decisions_offset() + static_cast<size_t>(capacity_.max_groups) * sizeof(uint32_t);
}

size_t CudaRiderPlan::group_begins_offset() const {
  return arrivals_offset() + static_cast<size_t>(capacity_.max_groups) * sizeof(uint32_t);
}

size_t CudaRiderPlan::groups_offset() const {
  return RoundUp(group_begins_offset() + static_cast<size_t>(capacity_.num_boundaries + 1) * sizeof(int32_t),
                 alignof(RiderDescriptor));
}

Result<std::unique_ptr<CudaRiderPlan>> CudaRiderPlan::Create(Device* device, const RiderCapacity& capacity) {
  TANDEM_CHECK(capacity.num_boundaries >= 1 && capacity.max_rows >= 1 && capacity.max_groups >= 1,
               "rider plan: {} boundaries, {} rows, {} groups", capacity.num_boundaries, capacity.max_rows,
               capacity.max_groups);
  std::unique_ptr<CudaRiderPlan> plan(new CudaRiderPlan(capacity));
  const size_t table_bytes =
      plan->groups_offset() + static_cast<size_t>(capacity.max_groups) * sizeof(RiderDescriptor);
  TANDEM_ASSIGN_OR_RETURN(plan->staging_,
                          device->Allocate(table_bytes, MemoryKind::kPinned, "staging of a rider plan"));
  TANDEM_ASSIGN_OR_RETURN(plan->tables_memory_,
                          device->Allocate(table_bytes, MemoryKind::kDevice, "a rider plan"));
  TANDEM_ASSIGN_OR_RETURN(plan->progress_memory_,
                          device->Allocate(kLineBytes, MemoryKind::kPinned, "progress of a rider plan"));
  TANDEM_ASSIGN_OR_RETURN(plan->decisions_memory_,
                          device->Allocate(static_cast<size_t>(capacity.max_groups) * sizeof(uint32_t),
                                           MemoryKind::kPinned, "decisions of a rider plan"));
  static_assert(sizeof(std::atomic<int64_t>) == sizeof(int64_t) && std::atomic<int64_t>::is_always_lock_free);
  plan->progress_ = new (plan->progress_memory_.data()) std::atomic<int64_t>(0);
  auto* memory = plan->tables_memory_.as<std::byte>();
  plan->tables_ = {
      .first_pass = reinterpret_cast<const int64_t*>(memory),
      .decisions = reinterpret_cast<uint32_t*>(memory + plan->decisions_offset()),
      .arrivals = reinterpret_cast<uint32_t*>(memory + plan->arrivals_offset()),
      .group_begins = reinterpret_cast<const int32_t*>(memory + plan->group_begins_offset()),
      .groups = reinterpret_cast<const RiderDescriptor*>(memory + plan->groups_offset()),
      .progress = plan->progress_memory_.as<volatile int64_t>(),
      .decided_ahead = capacity.decided_ahead,
  };
  return plan;
}

bool CudaRiderPlan::joined(int64_t group) const {
  TANDEM_CHECK(group >= 0 && group < num_groups_, "rider group {} of {}", group, num_groups_);
  return decisions_memory_.as<const uint32_t>()[group] == kRidersJoin;
}

void CudaRiderPlan::Plan(CudaStream& stream, std::span<const RiderGroup> groups, int64_t first_pass) {
  CheckRiderGroups(groups, capacity_);
  num_groups_ = static_cast<int64_t>(groups.size());
  auto* memory = staging_.as<std::byte>();
  *reinterpret_cast<int64_t*>(memory) = first_pass;
  auto* decisions = reinterpret_cast<uint32_t*>(memory + decisions_offset());
  auto* arrivals = reinterpret_cast<uint32_t*>(memory + arrivals_offset());
  auto* group_begins = reinterpret_cast<int32_t*>(memory + group_begins_offset());
  auto* descriptors = reinterpret_cast<RiderDescriptor*>(memory + groups_offset());
  size_t next = 0;
  for (int64_t boundary = -1; boundary + 1 < capacity_.num_boundaries; ++boundary) {
    group_begins[boundary + 1] = static_cast<int32_t>(next);
    int64_t row = 0;
    for (; next < groups.size() && groups[next].boundary == boundary; ++next) {
      descriptors[next] = Describe(groups[next], row);
      decisions[next] = boundary == -1 ? kRidersJoin : kRidersUndecided;
      arrivals[next] = 0;
      row += groups[next].residual.rows;
    }
  }
  group_begins[capacity_.num_boundaries] = static_cast<int32_t>(next);
  stream.Copy(tables_memory_.data(), memory, groups_offset() + next * sizeof(RiderDescriptor));
}

RiderRows CudaRiderPlan::RowsOf(const RiderArgs& args) const {
  RiderRows rows;
  rows.boundary = static_cast<int32_t>(args.boundary);
  rows.num_rows = static_cast<int32_t>(args.num_rows);
  rows.residual = RowOf(args.residual, args.row_begin);
  rows.residual_stride_bytes = StrideBytes(args.residual);
  rows.residual_bytes = static_cast<int32_t>(capacity_.hidden * int64_t{sizeof(float)});
  rows.attention_out = RowOf(args.attention_out, args.row_begin);
  rows.attention_out_stride_bytes = StrideBytes(args.attention_out);
  rows.attention_out_bytes =
      static_cast<int32_t>(capacity_.q_width * static_cast<int64_t>(DTypeSize(capacity_.dtype)));
  rows.qkv = RowOf(args.qkv, args.row_begin);
  rows.qkv_stride_bytes = StrideBytes(args.qkv);
  rows.qkv_bytes =
      static_cast<int32_t>(capacity_.qkv_width * static_cast<int64_t>(DTypeSize(capacity_.product_dtype)));
  rows.positions = args.positions == nullptr ? nullptr : args.positions + args.row_begin;
  return rows;
}

std::span<int32_t> CudaRiderPlan::Decide(CudaStream& stream, int64_t boundary) const {
  TANDEM_CHECK(capacity_.decided_ahead && boundary >= 0 && boundary + 1 < capacity_.num_boundaries,
               "riders: decided ahead at boundary {} of {}", boundary, capacity_.num_boundaries);
  LaunchDecideRiders(stream, tables_, static_cast<int32_t>(boundary));
  return {reinterpret_cast<int32_t*>(tables_.decisions), static_cast<size_t>(capacity_.max_groups)};
}

void CudaRiderPlan::Gather(CudaStream& stream, const RiderArgs& args) const {
  CheckRiderGather(args, capacity_);
  LaunchGatherRiders(stream, tables_, RowsOf(args));
}

void CudaRiderPlan::Scatter(CudaStream& stream, const RiderArgs& args) const {
  CheckRiderScatter(args, capacity_);
  LaunchScatterRiders(stream, tables_, RowsOf(args));
}

void CudaRiderPlan::Collect(CudaStream& stream) {
  stream.Copy(decisions_memory_.data(), tables_.decisions, decisions_memory_.size_bytes());
}

Result<std::unique_ptr<RiderPlan>> CudaOps::CreateRiderPlan(const RiderCapacity& capacity) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<CudaRiderPlan> plan, CudaRiderPlan::Create(device_, capacity));
  return std::unique_ptr<RiderPlan>(std::move(plan));
}

void CudaOps::PlanRiders(Stream& stream, std::span<const RiderGroup> groups, int64_t first_pass,
                         RiderPlan* plan) {
  PlanOf(plan).Plan(AsCudaStream(stream), groups, first_pass);
}

std::span<int32_t> CudaOps::DecideRiders(Stream& stream, const RiderPlan& plan, int64_t boundary) {
  return PlanOf(plan).Decide(AsCudaStream(stream), boundary);
}

void CudaOps::GatherRiders(Stream& stream, const RiderPlan& plan, const RiderArgs& args) {
  PlanOf(plan).Gather(AsCudaStream(stream), args);
}

void CudaOps::ScatterRiders(Stream& stream, const RiderPlan& plan, const RiderArgs& args) {
  PlanOf(plan).Scatter(AsCudaStream(stream), args);
}

void CudaOps::CollectRiders(Stream& stream, RiderPlan* plan) {
  PlanOf(plan).Collect(AsCudaStream(stream));
}

}  // namespace tandem
