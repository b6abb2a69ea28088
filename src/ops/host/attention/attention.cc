#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cpu_attention/kv_block.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"

namespace tandem {
namespace {

// Rows [row, row + num_rows) of q and out, which are consecutive positions of one sequence.
struct RowGroup {
  const AttentionSequence* sequence = nullptr;
  int64_t row = 0;
  int64_t num_rows = 0;
  int64_t first_position = 0;
  int64_t end_key() const { return first_position + num_rows; }
};

// A batch cut into what threads take. Stays where it is: groups point into the batch.
class PlannedBatch {
 public:
  explicit PlannedBatch(const AttentionBatch& batch) : batch_(batch) {
    for (const AttentionSequence& sequence : batch_.sequences) {
      TANDEM_CHECK(sequence.num_rows >= 1 && sequence.row_begin >= 0 &&
                       sequence.row_begin + sequence.num_rows <= batch_.num_rows &&
                       sequence.context_len >= sequence.num_rows,
                   "attention: rows [{}, +{}) of {}, context {}", sequence.row_begin, sequence.num_rows,
                   batch_.num_rows, sequence.context_len);
      for (int64_t row = 0; row < sequence.num_rows; row += kRowsPerGroup) {
        groups_.push_back({&sequence, sequence.row_begin + row,
                           std::min(kRowsPerGroup, sequence.num_rows - row),
                           sequence.context_len - sequence.num_rows + row});
      }
    }
    // The longest first, so that no thread starts one when the others are done.
    std::stable_sort(groups_.begin(), groups_.end(), [](const RowGroup& a, const RowGroup& b) {
      return a.num_rows * a.end_key() > b.num_rows * b.end_key();
    });
  }

  const AttentionBatch& batch() const { return batch_; }
  const std::vector<RowGroup>& groups() const { return groups_; }

 private:
  AttentionBatch batch_;
  std::vector<RowGroup> groups_;
};

// The stream's own: what it runs may be of the batch before while the next one is planned.
class HostAttentionPlan : public AttentionPlan {
 public:
  void Set(std::shared_ptr<const PlannedBatch> planned) { planned_ = std::move(planned); }
  const PlannedBatch& planned() const {
    TANDEM_CHECK(planned_ != nullptr, "attention: nothing is planned");
    return *planned_;
  }

 private:
  std::shared_ptr<const PlannedBatch> planned_;
};

void CheckAttention(const AttentionArgs& args, const PlannedBatch& plan) {
  CheckKvShape(args.kv);
  const KvShape& shape = args.kv.shape;
  TANDEM_CHECK(args.num_heads > 0 && args.num_heads % shape.num_kv_heads == 0,
               "attention: {} heads, {} kv heads", args.num_heads, shape.num_kv_heads);
  TANDEM_CHECK(args.q.cols == args.num_heads * shape.head_dim && args.out.cols == args.q.cols &&
                   args.q.rows >= plan.batch().num_rows && args.out.rows >= plan.batch().num_rows,
               "attention: q [{}, {}], out [{}, {}], {} heads of {}, {} rows", args.q.rows, args.q.cols,
               args.out.rows, args.out.cols, args.num_heads, shape.head_dim, plan.batch().num_rows);
  TANDEM_CHECK(RowsGoWith(args.q.dtype, shape.format) && RowsGoWith(args.out.dtype, shape.format),
               "attention: q {}, out {}, cache {}", DTypeName(args.q.dtype), DTypeName(args.out.dtype),
               KvFormatName(shape.format));
  for (const AttentionSequence& sequence : plan.batch().sequences) {
    TANDEM_CHECK(static_cast<int64_t>(sequence.block_table.size()) * shape.block_size >= sequence.context_len,
                 "attention: {} blocks of {} tokens, context {}", sequence.block_table.size(),
                 shape.block_size, sequence.context_len);
  }
}

AttentionRows MakeRows(const AttentionArgs& args, const RowGroup& group, int64_t kv_head,
                       const AttentionFetch& fetch) {
  AttentionRows rows;
  rows.fetch = fetch;
  rows.group_size = args.num_heads / args.kv.shape.num_kv_heads;
  const int64_t width = rows.group_size * args.kv.shape.head_dim;
  rows.q = args.q.Rows(group.row, group.num_rows).Columns(kv_head * width, width);
  rows.out = args.out.Rows(group.row, group.num_rows).Columns(kv_head * width, width);
  rows.num_rows = group.num_rows;
  rows.first_position = group.first_position;
  rows.window = args.sliding_window;
  rows.scale = args.scale;
  rows.block_table = group.sequence->block_table.data();
  SetKv(args.kv, kv_head, 1, &rows);
  return rows;
}

struct PartitionRange {
  int64_t first = 0;
  int64_t end = 0;
  int64_t count() const { return end - first; }
};

PartitionRange PartitionsOf(const AttentionRows& rows) {
  return {rows.begin_key() / kPartitionTokens, (rows.end_key() - 1) / kPartitionTokens + 1};
}

float* ThreadScratch(int64_t num_floats) {
  thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < num_floats) scratch.resize(static_cast<size_t>(num_floats));
  return scratch.data();
}

// A task computes all partitions of a group.
void RunGroups(ComputePool& pool, const AttentionArgs& args, const PlannedBatch& plan,
               const AttentionKernels& kernels, const AttentionFetch& fetch) {
  const int64_t num_kv_heads = args.kv.shape.num_kv_heads;
  const auto num_groups = static_cast<int64_t>(plan.groups().size());
  pool.ParallelFor(num_groups * num_kv_heads, [&](int64_t task) {
    const AttentionRows rows =
        MakeRows(args, plan.groups()[static_cast<size_t>(task / num_kv_heads)], task % num_kv_heads, fetch);
    const int64_t head_dim = args.kv.shape.head_dim;
    const int64_t state_size = AttentionStateSize(rows.num_queries(), head_dim);
    float* state = ThreadScratch(state_size + AttentionScratchSize(rows.num_queries(), head_dim, 1));
    const PartitionRange partitions = PartitionsOf(rows);
    kernels.run(rows, partitions.first, partitions.end, state, state + state_size);
    kernels.finish(rows, state);
  });
}

// A task computes one partition; merging follows. For a few long contexts.
void RunPartitions(ComputePool& pool, const AttentionArgs& args, const PlannedBatch& plan,
                   const AttentionKernels& kernels, const AttentionFetch& fetch) {
  struct Piece {
    AttentionRows rows;
    int64_t partition = 0;
    int64_t state_offset = 0;
  };
  struct Whole {
    size_t first_piece = 0;
    int64_t num_pieces = 0;
  };
  const int64_t head_dim = args.kv.shape.head_dim;
  std::vector<Piece> pieces;
  std::vector<Whole> wholes;
  int64_t num_floats = 0;
  for (const RowGroup& group : plan.groups()) {
    for (int64_t kv_head = 0; kv_head < args.kv.shape.num_kv_heads; ++kv_head) {
      const AttentionRows rows = MakeRows(args, group, kv_head, fetch);
      const PartitionRange partitions = PartitionsOf(rows);
      wholes.push_back({pieces.size(), partitions.count()});
      for (int64_t partition = partitions.first; partition < partitions.end; ++partition) {
        pieces.push_back({rows, partition, num_floats});
        num_floats += AttentionStateSize(rows.num_queries(), head_dim);
      }
    }
  }
  std::vector<float> states(static_cast<size_t>(num_floats));
  pool.ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t task) {
    const Piece& piece = pieces[static_cast<size_t>(task)];
    kernels.run(piece.rows, piece.partition, piece.partition + 1, states.data() + piece.state_offset,
                ThreadScratch(AttentionScratchSize(piece.rows.num_queries(), head_dim, 1)));
  });
  for (const Whole& whole : wholes) {
    const Piece& first = pieces[whole.first_piece];
    float* state = states.data() + first.state_offset;
    for (int64_t i = 1; i < whole.num_pieces; ++i) {
      kernels.merge(state, states.data() + pieces[whole.first_piece + static_cast<size_t>(i)].state_offset,
                    first.rows.num_queries(), head_dim);
    }
    kernels.finish(first.rows, state);
  }
}

bool WorthSplitting(const ComputePool& pool, const AttentionArgs& args, const PlannedBatch& plan) {
  const int64_t num_threads = pool.num_threads();
  if (num_threads == 1 || plan.groups().empty()) return false;
  const auto num_tasks = static_cast<int64_t>(plan.groups().size()) * args.kv.shape.num_kv_heads;
  if (num_tasks >= 4 * num_threads) return false;
  const RowGroup& longest = plan.groups().front();
  return PartitionsOf(MakeRows(args, longest, 0, {})).count() > 1;
}

}  // namespace

Result<std::unique_ptr<AttentionPlan>> HostOps::CreateAttentionPlan(const AttentionCapacity& /*capacity*/) {
  return std::unique_ptr<AttentionPlan>(std::make_unique<HostAttentionPlan>());
}

void HostOps::PlanAttention(Stream& stream, const AttentionBatch& batch, AttentionPlan* plan) {
  auto* host_plan = dynamic_cast<HostAttentionPlan*>(plan);
  TANDEM_CHECK(host_plan != nullptr, "attention: not a plan of the host backend");
  AsHostStream(stream).Enqueue([host_plan, planned = std::make_shared<const PlannedBatch>(batch)](
                                   ComputePool&) { host_plan->Set(planned); });
}

void HostOps::PagedAttention(Stream& stream, const AttentionArgs& args) {
  const auto* plan = dynamic_cast<const HostAttentionPlan*>(args.plan);
  TANDEM_CHECK(plan != nullptr, "attention: not a plan of the host backend");
  // The work may be replayed with another batch, so it looks at the plan when it runs.
  AsHostStream(stream).Enqueue(
      [args, plan, &kernels = attention_, fetch = options_.attention_fetch](ComputePool& pool) {
        const PlannedBatch& planned = plan->planned();
        CheckAttention(args, planned);
        if (WorthSplitting(pool, args, planned)) {
          RunPartitions(pool, args, planned, kernels, fetch);
        } else {
          RunGroups(pool, args, planned, kernels, fetch);
        }
      });
}

}  // namespace tandem
