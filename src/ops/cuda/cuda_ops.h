// Ops of the cuda backend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/cuda/cuda_target.h"
#include "device/device.h"
#include "ops/cuda/linear/quantized/code_rows.h"
#include "ops/ops.h"

namespace tandem {

class CublasLinear;
class CudaSampler;
class KvCopier;

struct CudaOpsOptions {
  // Where the measured choice of algorithms is kept between starts; empty: nowhere.
  std::string tuning_folder;
  // False: cuBLASLt's own first choice for every product, nothing is measured.
  bool tune_linear = true;
  // Whether quantized weights stay as they are (Ops::KeepsQuantized) or are widened.
  bool keep_quantized = true;
  CodeRows code_rows;
  // For ablations: what is left out where these are false.
  bool hot_choice = true;         // algorithms for many rows chosen on a hot GPU
  bool fused_gate_up = true;      // products with SiLU
  bool streamed_products = true;  // of 9 to 256 rows
  bool fp8_products = true;       // of activations as FP8 with weights of FP8
  bool flash_attention3 = true;   // FA3 for long prefills
};

// Each op is in a file of its own. Engine dtypes: bf16, fp16; fp32 for tests.
class CudaOps : public Ops {
 public:
  // device outlives the ops and is of the cuda backend.
  CudaOps(Device* device, const CudaOpsOptions& options);
  ~CudaOps() override;

  Result<std::unique_ptr<LinearWeight>> CreateLinearWeight(int64_t out_features, int64_t in_features,
                                                           DType dtype) override;
  Result<std::unique_ptr<LinearWeight>> CreateGateUpWeight(int64_t mlp, int64_t in_features,
                                                           DType dtype) override;
  bool KeepsQuantized(const WeightFormat& format, int64_t in_features, DType dtype) const override;
  Result<std::unique_ptr<QuantizedLinearWeight>> CreateQuantizedWeight(const QuantizedWeightShape& shape,
                                                                       const WeightFormat& format) override;
  size_t UnallocatedBytes() const override;
  size_t AttentionBytes(const AttentionCapacity& capacity) const override;
  Result<std::unique_ptr<AttentionPlan>> CreateAttentionPlan(const AttentionCapacity& capacity) override;
  void PlanAttention(Stream& stream, const AttentionBatch& batch, AttentionPlan* plan) override;
  void TuneLinear(Stream& stream, const LinearTuning& tuning) override;
  RowTiles ProductTiles() const override;
  DType ProductDType(DType dtype) const override { return dtype; }

  void Embedding(Stream& stream, const EmbeddingArgs& args) override;
  void AddRmsNorm(Stream& stream, const AddRmsNormArgs& args) override;
  void Linear(Stream& stream, const LinearArgs& args) override;
  void GateUp(Stream& stream, const GateUpArgs& args) override;
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
  Device* device_;
  CudaTarget target_;
  CudaOpsOptions options_;
  std::unique_ptr<CublasLinear> linear_;
  std::unique_ptr<CudaSampler> sampler_;
  std::unique_ptr<KvCopier> kv_copier_;
};

// device: of the cuda backend; outlives the ops.
std::unique_ptr<Ops> CreateCudaOps(Device* device, const CudaOpsOptions& options);

}  // namespace tandem
