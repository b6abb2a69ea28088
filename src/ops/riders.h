// Rows of riding cohorts: they join the rows of the main sub-batch for one post- and pre-projection, and
// leave again for CPU attention (APEX section 3.3). The device decides who joins: those whose attention is
// done when the main sub-batch gets there. Nobody waits.
//
//   boundary b      main rows:   post b | pre b+1 | gpu attention b+1                | post b+1 ...
//                   riders b:    post b | pre b+1 |
//                                            scatter b, gather b+1  (may run beside gpu attention)
//
//   gather   decides for each group of the boundary; of those that join, brings the residual and O into the
//            rows behind the main rows
//   scatter  of those that joined, takes the residual back and Q/K/V to the host, and sets their ready flag
//
// Rows of groups that do not join are computed for nothing: their state stays as it was.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/matrix_view.h"
#include "device/device.h"

namespace tandem {

// The rows of one cohort that would join at a boundary. Matrices are dense, all have the group's rows. What
// it points to stays alive until the stream has run the iteration.
struct RiderGroup {
  int64_t boundary = 0;                // -1 .. num_layers - 1
  MatrixView residual;                 // device, fp32 [rows, hidden]: all that a cohort keeps between visits
  const int32_t* positions = nullptr;  // device, [rows]
  // Pinned, engine dtype [rows, q_width]: O of the layer before, there once done has reached done_value.
  // Without data, and done null, at boundary -1: such a group always joins, its rows come from the embedding.
  MatrixView attention_out;
  Flag* done = nullptr;
  uint32_t done_value = 0;
  // Pinned, product dtype [rows, qkv_width]: for Q/K/V of the next layer; then ready is set to ready_value.
  // Without data, and ready null, at the last boundary, behind which no layer comes.
  MatrixView qkv;
  Flag* ready = nullptr;
  uint32_t ready_value = 0;
};

// What a plan must have room for, and the shapes of all its groups.
struct RiderCapacity {
  int64_t num_boundaries = 0;  // num_layers + 1
  int64_t max_rows = 0;        // at one boundary
  int64_t max_groups = 0;      // of an iteration
  int64_t hidden = 0;
  int64_t q_width = 0;
  int64_t qkv_width = 0;
  DType dtype = DType::kF32;          // of attention_out
  DType product_dtype = DType::kF32;  // of qkv
  bool decided_ahead = false;         // by Ops::DecideRiders, not by Ops::GatherRiders
};

// Who would join where in one iteration. Made by Ops::CreateRiderPlan, filled by Ops::PlanRiders; its memory
// stays where it is, so that a graph captured with it serves all its contents. Engine thread only.
class RiderPlan {
 public:
  virtual ~RiderPlan() = default;
  // Whether the group (by its place in the call of PlanRiders) has joined. Once Ops::CollectRiders and the
  // stream have run.
  virtual bool joined(int64_t group) const = 0;
  // Pinned memory: the pass that the stream has reached last, first_pass + boundary + 1 from ScatterRiders of
  // the boundary on. For orders of work, not for what is to happen once it is passed. Any thread.
  virtual const std::atomic<int64_t>* progress() const = 0;
};

// Rows [row_begin, row_begin + num_rows) of the views are those of the boundary's groups, in order; num_rows
// may be more than they have, the rest is left alone. No fewer.
struct RiderArgs {
  int64_t boundary = 0;
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  MatrixView residual;           // device, fp32 [*, hidden]; not of gather at boundary -1
  MatrixView attention_out;      // device, engine dtype [*, q_width]; of gather from boundary 0 on
  MatrixView qkv;                // device, product dtype [*, qkv_width]; of scatter, not at the last boundary
  int32_t* positions = nullptr;  // device, [*]; of gather
};

// Abort unless the groups, and the arguments of an op, fit the capacity and have the shapes described.
void CheckRiderGroups(std::span<const RiderGroup> groups, const RiderCapacity& capacity);
void CheckRiderGather(const RiderArgs& args, const RiderCapacity& capacity);
void CheckRiderScatter(const RiderArgs& args, const RiderCapacity& capacity);

}  // namespace tandem
