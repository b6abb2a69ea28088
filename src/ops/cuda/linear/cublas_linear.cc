#include "ops/cuda/linear/cublas_linear.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "ops/cuda/linear/cuda_linear_weight.h"
#include "ops/cuda/linear/fp8/cuda_fp8_weight.h"
#include "ops/cuda/linear/linear_tuner.h"
#include "ops/cuda/linear/quantized/streamed_codes.h"
#include "ops/cuda/linear/skinny_linear.h"
#include "ops/cuda/row_alignment.h"
#include "ops/cuda/rows/silu_mul.h"

namespace tandem {
namespace {

// Up to here every row count has an algorithm of its own, or that of the next larger count that was measured;
// above, counts share cuBLASLt's choice for the next multiple of kRowStep.
constexpr int64_t kMaxExactRows = 256;
constexpr int64_t kRowStep = 128;
// A larger count's measured algorithm serves counts that are at most this much smaller.
constexpr int64_t kMeasuredReach = 64;

// Largest power of two up to 16 that divides the addresses of all rows of x and y.
int64_t AlignmentOf(const LinearArgs& args) {
  const auto bits = reinterpret_cast<uintptr_t>(args.x.data) | reinterpret_cast<uintptr_t>(args.y.data) |
                    static_cast<uintptr_t>(args.x.row_stride) * DTypeSize(args.x.dtype) |
                    static_cast<uintptr_t>(args.y.row_stride) * DTypeSize(args.y.dtype) | uintptr_t{16};
  return static_cast<int64_t>(bits & (~bits + 1));
}

void CheckArgs(const LinearArgs& args) {
  const LinearWeight& weight = *args.weight;
  TANDEM_CHECK(args.x.cols == weight.in_features() && args.y.cols == weight.out_features() &&
                   args.x.rows == args.y.rows && args.x.row_stride >= args.x.cols &&
                   args.y.row_stride >= args.y.cols,
               "linear: x [{}, {}] stride {}, weight [{}, {}], y [{}, {}] stride {}", args.x.rows,
               args.x.cols, args.x.row_stride, weight.out_features(), weight.in_features(), args.y.rows,
               args.y.cols, args.y.row_stride);
  TANDEM_CHECK(
      args.x.dtype == weight.dtype() && (args.y.dtype == DType::kF32 || args.y.dtype == weight.dtype()),
      "linear: x {}, weight {}, y {}", DTypeName(args.x.dtype), DTypeName(weight.dtype()),
      DTypeName(args.y.dtype));
}

void CheckGateUpArgs(const GateUpArgs& args, bool is_gate_up) {
  const LinearWeight& weight = *args.weight;
  CheckArgs({.x = args.x, .weight = args.weight, .y = args.scratch});
  TANDEM_CHECK(is_gate_up && args.y.rows == args.x.rows && 2 * args.y.cols == weight.out_features() &&
                   args.y.dtype == weight.dtype(),
               "gate_up: weight [{}, {}] {}, gate-up {}, y {} [{}, {}]", weight.out_features(),
               weight.in_features(), DTypeName(weight.dtype()), is_gate_up, DTypeName(args.y.dtype),
               args.y.rows, args.y.cols);
}

const CudaCodedWeight* AsCoded(const LinearWeight* weight) {
  return dynamic_cast<const CudaCodedWeight*>(weight);
}

const CudaFp8Weight& AsFp8(const CudaCodedWeight& weight) {
  return dynamic_cast<const CudaFp8Weight&>(weight);
}

// Calls run(first, count) for pieces of rows.
template <typename Run>
void ForEachPiece(int64_t rows, int64_t piece_rows, const Run& run) {
  for (int64_t first = 0; first < rows; first += piece_rows) run(first, std::min(piece_rows, rows - first));
}

// The same product of another number of rows: for questions, not to be run.
LinearArgs WithRows(LinearArgs args, int64_t rows) {
  args.x.rows = rows;
  args.y.rows = rows;
  return args;
}

}  // namespace

CublasLinear::CublasLinear(Device* device, const CudaOpsOptions& options)
    : device_(device),
      options_(options),
      runner_(device),
      file_(device, options.tune_linear ? options.tuning_folder : ""),
      quantized_(device, &runner_, options.code_rows, options.streamed_products),
      upload_(std::make_shared<WeightUpload>(device)) {
  for (auto& [shape, measured] : file_.Load()) choices_[shape].measured = std::move(measured);
}

Result<std::unique_ptr<LinearWeight>> CublasLinear::CreateWeight(int64_t out_features, int64_t in_features,
                                                                 DType dtype) {
  return CudaLinearWeight::Create(device_, upload_, out_features, in_features, dtype);
}

Result<std::unique_ptr<LinearWeight>> CublasLinear::CreateGateUpWeight(int64_t mlp, int64_t in_features,
                                                                       DType dtype) {
  return CudaLinearWeight::Create(device_, upload_, 2 * mlp, in_features, dtype, /*is_gate_up=*/true);
}

bool CublasLinear::UsesSkinny(const LinearArgs& args) const {
  // An SM of a slice could have many times its share of the memory's rate, and the own kernel cannot use it:
  // 658 us a layer of Llama-3.1-8B at 8 SMs where cuBLASLt takes 390.
  if (runner_.in_slice()) return false;
  LinearAlgorithm skinny;
  skinny.method = LinearMethod::kSkinny;
  return options_.tune_linear && runner_.CanRun(args, skinny);
}

LinearAlgorithm CublasLinear::Resolve(const LinearArgs& args, int64_t alignment, Choices* choices) {
  const int64_t rows = args.x.rows;
  if (UsesSkinny(args)) {
    LinearAlgorithm skinny;
    skinny.method = LinearMethod::kSkinny;
    return skinny;
  }
  if (alignment == 16) {
    const auto next = choices->measured.lower_bound(rows);
    if (next != choices->measured.end() &&
        (next->first <= kMaxExactRows || next->first - rows <= kMeasuredReach) &&
        runner_.CanRun(args, next->second)) {
      return next->second;
    }
  }
  const int64_t asked_rows = rows <= kMaxExactRows ? rows : (rows + kRowStep - 1) / kRowStep * kRowStep;
  const auto [found, is_new] = choices->first.try_emplace(asked_rows * 32 + alignment);
  if (is_new) {
    const std::optional<LinearAlgorithm> first = runner_.FirstChoice(WithRows(args, asked_rows));
    TANDEM_CHECK(first.has_value(), "cuBLASLt cannot multiply x {} [{}, {}] with a weight [{}, {}]",
                 DTypeName(args.x.dtype), rows, args.x.cols, args.y.cols, args.x.cols);
    found->second = *first;
  }
  if (asked_rows == rows || runner_.CanRun(args, found->second)) return found->second;
  const std::optional<LinearAlgorithm> own = runner_.FirstChoice(args);
  TANDEM_CHECK(own.has_value(), "cuBLASLt cannot multiply x {} [{}, {}] with a weight [{}, {}]",
               DTypeName(args.x.dtype), rows, args.x.cols, args.y.cols, args.x.cols);
  return *own;
}

LinearAlgorithm CublasLinear::Choose(const LinearArgs& args) {
  const ProductKind shape = ShapeOf(AsCudaLinearWeight(args.weight), args.y.dtype);
  const int64_t alignment = AlignmentOf(args);
  const std::lock_guard lock(mutex_);
  Choices& choices = choices_[shape];
  const auto [found, is_new] = choices.resolved.try_emplace(args.x.rows * 32 + alignment);
  if (is_new) found->second = Resolve(args, alignment, &choices);
  return found->second;
}

Result<std::unique_ptr<QuantizedLinearWeight>> CublasLinear::CreateQuantizedWeight(
    const QuantizedWeightShape& shape, const WeightFormat& format) {
  TANDEM_ASSIGN_OR_RETURN(auto weight, quantized_.CreateWeight(upload_, shape, format));
  const CudaCodedWeight& coded = *AsCoded(weight.get());
  if (IsDenseFp8(coded)) {
    has_dense_fp8_ = true;
  } else {
    quantized_.ExpectValues(coded);
  }
  return weight;
}

size_t CublasLinear::UnallocatedBytes() const {
  return quantized_.StreamBytes() + (has_dense_fp8_ ? LinearRunner::Fp8Bytes() : 0);
}

bool CublasLinear::IsDenseFp8(const CudaCodedWeight& weight) const {
  const auto* fp8 = dynamic_cast<const CudaFp8Weight*>(&weight);
  return options_.fp8_products && fp8 != nullptr && fp8->HasFp8Products();
}

bool CublasLinear::IsDenseFp8(const CudaCodedWeight& weight, const MatrixView& x) const {
  return IsDenseFp8(weight) && RowsAligned16(x);
}

void CublasLinear::Prepare(CudaStream& stream, const CudaCodedWeight* quantized) {
  // Whoever multiplies has loaded the weights.
  if (runner_.PrepareWorkspace(stream)) {
    upload_->ReleaseStaging();
    quantized_.ReleaseStaging();
  }
  if (quantized != nullptr) quantized_.Prepare(stream, *quantized);
}

void CublasLinear::Run(CudaStream& stream, const LinearArgs& args) {
  CheckArgs(args);
  if (args.x.rows == 0) return;
  const CudaCodedWeight* coded = AsCoded(args.weight);
  const bool is_dense_fp8 = coded != nullptr && IsDenseFp8(*coded, args.x);
  Prepare(stream, is_dense_fp8 ? nullptr : coded);
  if (coded == nullptr) return RunDense(stream, args);
  if (!is_dense_fp8) return RunQuantized(stream, args, *coded);
  runner_.PrepareFp8(stream);
  const CudaLinearWeight weight = AsFp8(*coded).AsLinear();
  ForEachPiece(args.x.rows, MaxFp8Rows(args.x.cols), [&](int64_t first, int64_t count) {
    RunDense(stream, {.x = args.x.Rows(first, count), .weight = &weight, .y = args.y.Rows(first, count)});
  });
}

void CublasLinear::RunDense(CudaStream& stream, const LinearArgs& args) {
  TANDEM_CHECK(runner_.Run(stream, args, Choose(args)), "linear: x {} [{}, {}] stride {}, y {} [{}, {}]",
               DTypeName(args.x.dtype), args.x.rows, args.x.cols, args.x.row_stride, DTypeName(args.y.dtype),
               args.y.rows, args.y.cols);
}

void CublasLinear::RunQuantized(CudaStream& stream, const LinearArgs& args, const CudaCodedWeight& weight) {
  if (quantized_.UsesCodes(args.x, weight, args.y))
    return quantized_.RunCodes(stream, args.x, weight, args.y);
  const int64_t step = QuantizedProducts::SlabOutputs(weight);
  for (int64_t first = 0; first < weight.out_features(); first += step) {
    const CudaLinearWeight slab = quantized_.Slab(stream, weight, first);
    RunDense(stream, {.x = args.x, .weight = &slab, .y = args.y.Columns(first, slab.out_features())});
  }
}

FusedGateUp CublasLinear::ChooseFused(const GateUpArgs& args) {
  if (!options_.fused_gate_up || args.x.rows < kMinFusedRows || !runner_.CanFuse(args))
    return FusedGateUp::kNone;
  const ProductKind shape = ShapeOf(AsCudaLinearWeight(args.weight), args.scratch.dtype);
  const std::lock_guard lock(mutex_);
  const std::map<int64_t, LinearAlgorithm>& measured = choices_[shape].measured;
  if (measured.empty()) return FusedGateUp::kNone;
  const auto next = measured.lower_bound(args.x.rows);
  return (next != measured.end() ? next : std::prev(next))->second.fused;
}

void CublasLinear::RunGateUp(CudaStream& stream, const GateUpArgs& args) {
  const CudaCodedWeight* coded = AsCoded(args.weight);
  CheckGateUpArgs(args,
                  coded != nullptr ? coded->is_gate_up() : AsCudaLinearWeight(args.weight).is_gate_up());
  if (args.x.rows == 0) return;
  const bool is_dense_fp8 = coded != nullptr && IsDenseFp8(*coded, args.x);
  Prepare(stream, is_dense_fp8 ? nullptr : coded);
  if (coded == nullptr) return RunGateUpDense(stream, args);
  if (!is_dense_fp8) return RunGateUpQuantized(stream, args, *coded);
  runner_.PrepareFp8(stream);
  const CudaLinearWeight weight = AsFp8(*coded).AsLinear();
  ForEachPiece(args.x.rows, MaxFp8Rows(args.x.cols), [&](int64_t first, int64_t count) {
    RunGateUpDense(stream, {.x = args.x.Rows(first, count),
                            .weight = &weight,
                            .scratch = args.scratch.Rows(first, count),
                            .y = args.y.Rows(first, count)});
  });
}

void CublasLinear::RunGateUpDense(CudaStream& stream, const GateUpArgs& args) {
  const FusedGateUp fused = ChooseFused(args);
  LinearAlgorithm algorithm;
  if (fused == FusedGateUp::kNone) {
    algorithm = Choose({.x = args.x, .weight = args.weight, .y = args.scratch});
  }
  algorithm.fused = fused;
  TANDEM_CHECK(runner_.RunGateUp(stream, args, algorithm), "gate_up: x {} [{}, {}] stride {}, y [{}, {}]",
               DTypeName(args.x.dtype), args.x.rows, args.x.cols, args.x.row_stride, args.y.rows,
               args.y.cols);
}

void CublasLinear::RunGateUpQuantized(CudaStream& stream, const GateUpArgs& args,
                                      const CudaCodedWeight& weight) {
  if (quantized_.RunGateUpCodes(stream, args.x, weight, args.y)) return;
  const bool is_one_slab = QuantizedProducts::SlabOutputs(weight) == weight.out_features();
  if (!is_one_slab || quantized_.UsesCodes(args.x, weight, args.scratch)) {
    RunQuantized(stream, {.x = args.x, .weight = args.weight, .y = args.scratch}, weight);
    return LaunchSiluMul(stream, {.gate_up = args.scratch, .out = args.y});
  }
  const CudaLinearWeight values = quantized_.Slab(stream, weight, 0);
  GateUpArgs dense = args;
  dense.weight = &values;
  RunGateUpDense(stream, dense);
}

void CublasLinear::Tune(CudaStream& stream, const LinearTuning& tuning) {
  TANDEM_CHECK(!tuning.weights.empty(), "tune linear: no weight");
  // Layers of a mixed model may have any.
  std::vector<const LinearWeight*> dense;
  std::vector<std::unique_ptr<CudaLinearWeight>> fp8;
  const CudaCodedWeight* quantized = nullptr;
  for (const LinearWeight* weight : tuning.weights) {
    const CudaCodedWeight* coded = AsCoded(weight);
    if (coded == nullptr) {
      dense.push_back(weight);
    } else if (IsDenseFp8(*coded)) {
      fp8.emplace_back(new CudaLinearWeight(AsFp8(*coded).AsLinear()));
    } else if (quantized == nullptr) {
      quantized = coded;
    }
  }
  Prepare(stream, quantized);
  if (!dense.empty()) {
    TuneDense(stream, {.weights = dense, .y_dtype = tuning.y_dtype, .row_counts = tuning.row_counts});
  }
  if (!fp8.empty()) {
    runner_.PrepareFp8(stream);
    std::vector<const LinearWeight*> weights;
    weights.reserve(fp8.size());
    for (const auto& weight : fp8) weights.push_back(weight.get());
    std::vector<int64_t> row_counts(tuning.row_counts.begin(), tuning.row_counts.end());
    const int64_t max_rows = MaxFp8Rows(weights[0]->in_features());
    std::erase_if(row_counts, [&](int64_t rows) { return rows > max_rows; });
    TuneDense(stream, {.weights = weights, .y_dtype = tuning.y_dtype, .row_counts = row_counts});
  }
  if (quantized != nullptr) TuneQuantized(stream, tuning, *quantized);
}

// Formats may differ too, but the values have one shape. Those of one weight are measured: a product finds
// them as fresh in the L2 as it will when they have just been dequantized.
void CublasLinear::TuneQuantized(CudaStream& stream, const LinearTuning& tuning,
                                 const CudaCodedWeight& weight) {
  std::vector<int64_t> row_counts(tuning.row_counts.begin(), tuning.row_counts.end());
  // The questions need addresses, but nothing is read.
  void* any = runner_.WorkspaceMemory(stream);
  std::erase_if(row_counts, [&](int64_t rows) {
    return quantized_.UsesCodes(MatrixView::Dense(any, weight.dtype(), rows, weight.in_features()), weight,
                                MatrixView::Dense(any, tuning.y_dtype, rows, weight.out_features()));
  });
  if (row_counts.empty()) return;
  const int64_t step = QuantizedProducts::SlabOutputs(weight);
  int64_t measured_outputs = 0;
  for (int64_t first = 0; first < weight.out_features(); first += step) {
    const CudaLinearWeight slab = quantized_.Slab(stream, weight, first);
    if (std::exchange(measured_outputs, slab.out_features()) == slab.out_features()) continue;
    const LinearWeight* slabs[] = {&slab};
    TuneDense(stream, {.weights = slabs, .y_dtype = tuning.y_dtype, .row_counts = row_counts});
  }
}

void CublasLinear::TuneDense(CudaStream& stream, const LinearTuning& tuning) {
  const ProductKind shape = ShapeOf(AsCudaLinearWeight(tuning.weights[0]), tuning.y_dtype);
  for (const LinearWeight* weight : tuning.weights) {
    TANDEM_CHECK(ShapeOf(AsCudaLinearWeight(weight), tuning.y_dtype) == shape,
                 "tune linear: a weight [{}, {}] among weights [{}, {}]", weight->out_features(),
                 weight->in_features(), shape.out_features, shape.in_features);
  }
  if (!options_.tune_linear || shape.dtype == DType::kF32) return;
  std::set<int64_t> wanted(tuning.row_counts.begin(), tuning.row_counts.end());
  wanted.erase(wanted.begin(), wanted.upper_bound(0));
  // The questions need addresses, but nothing is read.
  void* any = AsCudaLinearWeight(tuning.weights[0]).view().data;
  const auto args_of = [&](int64_t rows) -> LinearArgs {
    return {MatrixView::Dense(any, tuning.weights[0]->dtype(), rows, shape.in_features), tuning.weights[0],
            MatrixView::Dense(any, shape.y_dtype, rows, shape.out_features)};
  };
  std::erase_if(wanted, [&](int64_t rows) { return UsesSkinny(args_of(rows)); });
  const auto take_measured = [&] {
    Choices& choices = choices_[shape];
    choices.resolved.clear();
    std::erase_if(choices.measured, [&](const auto& entry) {
      const auto& [rows, algorithm] = entry;
      if (!runner_.CanRun(args_of(rows), algorithm)) return true;
      wanted.erase(rows);
      return false;
    });
  };
  {
    // What an earlier start measured counts if it still runs.
    const std::lock_guard lock(mutex_);
    take_measured();
    // And what another shard of this start has measured since.
    if (!wanted.empty()) {
      for (auto& [each, measured] : file_.Load()) choices_[each].measured.merge(measured);
      take_measured();
    }
  }
  if (wanted.empty()) return;
  std::map<int64_t, LinearAlgorithm> found =
      LinearTuner(device_, &runner_, &stream, tuning, options_).Measure({wanted.begin(), wanted.end()});
  const std::lock_guard lock(mutex_);
  Choices& choices = choices_[shape];
  choices.measured.merge(found);
  choices.resolved.clear();
  LinearTuningFile::Content content;
  for (const auto& [each, of_shape] : choices_) {
    if (!of_shape.measured.empty()) content[each] = of_shape.measured;
  }
  file_.Save(content);
}

std::string CublasLinear::Description() const {
  const size_t version = cublasLtGetVersion();
  std::string text =
      fmt::format("products: cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  const bool streams =
      HasStreamedLinear() && options_.streamed_products && runner_.target().compute_capability == 90;
  if (options_.keep_quantized) {
    text += fmt::format(", of quantized weights own kernels up to {} rows",
                        streams ? kMaxStreamedCodeRows : options_.code_rows.max);
  }
  if (!options_.tune_linear) return text;
  text += fmt::format(" with measured algorithms, own kernel up to {} rows", kMaxSkinnyRows);
  if (HasFusedGateUp() && runner_.target().compute_capability == 90) {
    text += fmt::format(", and with SiLU from {} on where it is faster", kMinFusedRows);
  }
  if (streams) {
    text += fmt::format(", streamed up to {} where that is faster", kMaxStreamedRows);
  }
  return text;
}

// Of cuBLASLt's best algorithms: the larger the more rows there are. With 16 SMs of an H200 the products of a
// layer of Llama-3.1-8B take 1.29 ms for 320 rows, about 1.53 for 321 to 384, 1.78 for 385. Up to 64 rows
// more of them cost next to nothing.
RowTiles CudaOps::ProductTiles() const {
  return {.steps = {{.up_to_rows = 64, .tile_rows = 1},
                    {.up_to_rows = 256, .tile_rows = 16},
                    {.up_to_rows = 384, .tile_rows = 64}},
          .last_tile_rows = 128};
}

bool CudaOps::KeepsQuantized(const WeightFormat& format, int64_t in_features, DType dtype) const {
  return options_.keep_quantized && QuantizedProducts::Keeps(*device_, format, in_features, dtype);
}

Result<std::unique_ptr<QuantizedLinearWeight>> CudaOps::CreateQuantizedWeight(
    const QuantizedWeightShape& shape, const WeightFormat& format) {
  return linear_->CreateQuantizedWeight(shape, format);
}

size_t CudaOps::UnallocatedBytes() const {
  return linear_->UnallocatedBytes();
}

Result<std::unique_ptr<LinearWeight>> CudaOps::CreateLinearWeight(int64_t out_features, int64_t in_features,
                                                                  DType dtype) {
  return linear_->CreateWeight(out_features, in_features, dtype);
}

void CudaOps::Linear(Stream& stream, const LinearArgs& args) {
  linear_->Run(AsCudaStream(stream), args);
}

Result<std::unique_ptr<LinearWeight>> CudaOps::CreateGateUpWeight(int64_t mlp, int64_t in_features,
                                                                  DType dtype) {
  return linear_->CreateGateUpWeight(mlp, in_features, dtype);
}

void CudaOps::GateUp(Stream& stream, const GateUpArgs& args) {
  linear_->RunGateUp(AsCudaStream(stream), args);
}

void CudaOps::TuneLinear(Stream& stream, const LinearTuning& tuning) {
  linear_->Tune(AsCudaStream(stream), tuning);
}

}  // namespace tandem
