// Ops of the host backend.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cpu_attention/attention_kernels.h"
#include "ops/host/linear/linear_kernels.h"
#include "ops/host/linear/quantized_kernels.h"
#include "ops/host/linear/weight_arena.h"
#include "ops/host/rows/row_kernels.h"
#include "ops/ops.h"
#include "simd/cpu_isa.h"

namespace tandem {

class HostQuantizedWeight;

enum class OneDnnUse {
  kAuto,    // bf16 with many rows on processors with AMX, where the own kernels have no match
  kNever,   //
  kAlways,  // every product, for comparisons
};

struct HostOpsOptions {
  CpuIsa isa = BestCpuIsa();
  OneDnnUse onednn = OneDnnUse::kAuto;
  AttentionFetch attention_fetch;
  ProductFetch product_fetch;
};

// Each op is in a file of its own.
class HostOps : public Ops {
 public:
  explicit HostOps(const HostOpsOptions& options);

  // Of all that is enqueued from now on. The thread that enqueues.
  void UseFetches(const AttentionFetch& attention, const ProductFetch& products);

  Result<std::unique_ptr<LinearWeight>> CreateLinearWeight(int64_t out_features, int64_t in_features,
                                                           DType dtype) override;
  Result<std::unique_ptr<LinearWeight>> CreateGateUpWeight(int64_t mlp, int64_t in_features,
                                                           DType dtype) override {
    return CreateLinearWeight(2 * mlp, in_features, dtype);
  }
  bool KeepsQuantized(const WeightFormat& format, int64_t in_features, DType dtype) const override;
  bool ReordersColumns() const override { return true; }
  Result<std::unique_ptr<QuantizedLinearWeight>> CreateQuantizedWeight(const QuantizedWeightShape& shape,
                                                                       const WeightFormat& format) override;
  Result<std::unique_ptr<AttentionPlan>> CreateAttentionPlan(const AttentionCapacity& capacity) override;
  void PlanAttention(Stream& stream, const AttentionBatch& batch, AttentionPlan* plan) override;
  // Nothing to find out: the kernels' shapes do not depend on the number of rows.
  void TuneLinear(Stream& /*stream*/, const LinearTuning& /*tuning*/) override {}
  // The last chunk, group of rows or tile of AMX of a product is only as long as there are rows.
  RowTiles ProductTiles() const override { return {}; }
  // Rounding them would cost accuracy and no less time.
  DType ProductDType(DType /*dtype*/) const override { return DType::kF32; }
  void Embedding(Stream& stream, const EmbeddingArgs& args) override;
  void AddRmsNorm(Stream& stream, const AddRmsNormArgs& args) override;
  void Linear(Stream& stream, const LinearArgs& args) override;
  void GateUp(Stream& stream, const GateUpArgs& args) override {
    Linear(stream, {.x = args.x, .weight = args.weight, .y = args.scratch});
    SiluMul(stream, {.gate_up = args.scratch, .out = args.y});
  }
  void QkvPrepare(Stream& stream, const QkvPrepareArgs& args) override;
  void PagedAttention(Stream& stream, const AttentionArgs& args) override;
  void SiluMul(Stream& stream, const SiluMulArgs& args) override;
  void GatherRows(Stream& stream, const GatherRowsArgs& args) override;
  void Sample(Stream& stream, const SampleArgs& args) override;
  void PutDrawnTokens(Stream& stream, const DrawnTokensArgs& args) override;
  CopyKvCount CopyKv(Stream& stream, const CopyKvArgs& args) override;
  Result<std::unique_ptr<RiderPlan>> CreateRiderPlan(const RiderCapacity& capacity) override;
  void PlanRiders(Stream& stream, std::span<const RiderGroup> groups, int64_t first_pass,
                  RiderPlan* plan) override;
  std::span<int32_t> DecideRiders(Stream& stream, const RiderPlan& plan, int64_t boundary) override;
  void GatherRiders(Stream& stream, const RiderPlan& plan, const RiderArgs& args) override;
  void ScatterRiders(Stream& stream, const RiderPlan& plan, const RiderArgs& args) override;
  void CollectRiders(Stream& stream, RiderPlan* plan) override;
  void FillRandom(Stream& stream, const MatrixView& matrix, const RandomValues& values) override;
  std::string Description() const override;

 private:
  bool UseOneDnn(DType dtype, int64_t num_rows) const;
  void LinearQuantized(Stream& stream, const LinearArgs& args, const HostQuantizedWeight& weight);

  HostOpsOptions options_;
  WeightArena weight_arena_;
  const LinearKernels& linear_;
  const QuantizedKernels& quantized_;
  const QuantizedKernels& fp8_;
  const AttentionKernels& attention_;
  const RowKernels& row_;
};

std::unique_ptr<HostOps> CreateHostOps(const HostOpsOptions& options);

}  // namespace tandem
