// All operations of one backend. An op checks its arguments, then enqueues its work on a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/result.h"
#include "base/row_tiles.h"
#include "device/device.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/kv_copy.h"
#include "ops/linear.h"
#include "ops/riders.h"
#include "ops/sampling.h"

namespace tandem {

// Arguments are device memory unless an op says otherwise and stay alive until the stream has run the op.
// Shapes are CHECKed: they come from our own code. Enqueueing is for one thread at a time a stream.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual Result<std::unique_ptr<LinearWeight>> CreateLinearWeight(int64_t out_features, int64_t in_features,
                                                                   DType dtype) = 0;
  // For GateUp: gate rows [0, mlp), up rows [mlp, 2 mlp). Linear with it gives the columns in an order that
  // SiluMul of the same backend knows.
  virtual Result<std::unique_ptr<LinearWeight>> CreateGateUpWeight(int64_t mlp, int64_t in_features,
                                                                   DType dtype) = 0;
  // Whether weights of a quantized format are multiplied as they are stored, at this dtype of x. Others have
  // to be widened while they are loaded.
  virtual bool KeepsQuantized(const WeightFormat& /*format*/, int64_t /*in_features*/,
                              DType /*dtype*/) const {
    return false;
  }
  // Whether quantized weights may have a QuantizedWeightShape::column_order.
  virtual bool ReordersColumns() const { return false; }
  // Errors: kUnsupported unless KeepsQuantized; kResourceExhausted.
  virtual Result<std::unique_ptr<QuantizedLinearWeight>> CreateQuantizedWeight(
      const QuantizedWeightShape& shape, const WeightFormat& format) {
    return MakeError(ErrorCode::kUnsupported, "this backend does not multiply a weight [{}, {}] of {}",
                     shape.out_features, shape.in_features, DescribeWeightFormat(format));
  }
  // Device memory that the ops will take, beyond what a backend always takes, when the weights made so far
  // are first multiplied.
  virtual size_t UnallocatedBytes() const { return 0; }
  // Device memory that a plan takes for the numbers of capacity.max_context tokens, where attention cannot
  // read what the cache holds.
  virtual size_t AttentionBytes(const AttentionCapacity& /*capacity*/) const { return 0; }
  // A plan with room for any batch within the capacity. Errors: kResourceExhausted.
  virtual Result<std::unique_ptr<AttentionPlan>> CreateAttentionPlan(const AttentionCapacity& capacity) = 0;
  // Makes plan that of batch, for everything enqueued on stream from now on, replays of graphs captured with
  // this plan included. What ran with the plan before may run still, but what ran with the one before that
  // must have ended.
  virtual void PlanAttention(Stream& stream, const AttentionBatch& batch, AttentionPlan* plan) = 0;

  // Finds the fastest way for products that will be needed often. Blocks. Without it Linear works as well.
  virtual void TuneLinear(Stream& stream, const LinearTuning& tuning) = 0;
  // Tiles of rows that cost as a whole in products of many columns.
  virtual RowTiles ProductTiles() const = 0;
  // Type of the results that stay between the ops of a layer (qkv, gate_up, delta) for an engine dtype.
  virtual DType ProductDType(DType dtype) const = 0;

  virtual void Embedding(Stream& stream, const EmbeddingArgs& args) = 0;
  virtual void AddRmsNorm(Stream& stream, const AddRmsNormArgs& args) = 0;
  virtual void Linear(Stream& stream, const LinearArgs& args) = 0;
  virtual void GateUp(Stream& stream, const GateUpArgs& args) = 0;
  virtual void QkvPrepare(Stream& stream, const QkvPrepareArgs& args) = 0;
  virtual void PagedAttention(Stream& stream, const AttentionArgs& args) = 0;
  virtual void SiluMul(Stream& stream, const SiluMulArgs& args) = 0;
  virtual void GatherRows(Stream& stream, const GatherRowsArgs& args) = 0;
  virtual void Sample(Stream& stream, const SampleArgs& args) = 0;
  virtual void PutDrawnTokens(Stream& stream, const DrawnTokensArgs& args) = 0;
  // Best on one stream of kind kCopy, or one for each direction: calls of one direction on several streams
  // wait for each other. Not for graphs.
  virtual CopyKvCount CopyKv(Stream& stream, const CopyKvArgs& args) = 0;

  // A plan with room for whatever is within the capacity. Errors: kResourceExhausted.
  virtual Result<std::unique_ptr<RiderPlan>> CreateRiderPlan(const RiderCapacity& capacity) = 0;
  // Makes plan that of groups, for everything enqueued on stream from now on, replays of graphs captured with
  // this plan included. groups: in order of their boundaries. first_pass: number of this iteration's boundary
  // -1 among the boundaries of all iterations (RiderPlan::progress). What ran with the plan before must have
  // ended.
  virtual void PlanRiders(Stream& stream, std::span<const RiderGroup> groups, int64_t first_pass,
                          RiderPlan* plan) = 0;
  // Of a plan that is decided ahead: which groups at a boundary from 0 on can join, before the call of
  // GatherRiders, which then goes by what lies there: of a group that joins a greater number than of one that
  // does not, so that the least of several shards' is what they agree on. Device memory, at least of the
  // boundary's groups, of as many in every shard; empty where there are none.
  virtual std::span<int32_t> DecideRiders(Stream& stream, const RiderPlan& plan, int64_t boundary) = 0;
  // Before the products of a boundary. All groups there join that can; the others are left out until the next
  // call of PlanRiders. At boundary -1, where it is needed only for them, it brings the positions.
  virtual void GatherRiders(Stream& stream, const RiderPlan& plan, const RiderArgs& args) = 0;
  // After the pre-projection behind a boundary, or the last boundary's post-projection; also where no groups
  // are, for the progress.
  virtual void ScatterRiders(Stream& stream, const RiderPlan& plan, const RiderArgs& args) = 0;
  // Brings the decisions to the host.
  virtual void CollectRiders(Stream& stream, RiderPlan* plan) = 0;

  // matrix: dense, engine dtype or fp32.
  virtual void FillRandom(Stream& stream, const MatrixView& matrix, const RandomValues& values) = 0;

  // What the ops chose for this machine ("bf16: AVX-512 BF16 up to 32 rows, oneDNN above"), for doctor and
  // the log.
  virtual std::string Description() const = 0;
};

// Ops of the host backend (streams of CreateHostDevice).
std::unique_ptr<Ops> CreateHostOps();

}  // namespace tandem
