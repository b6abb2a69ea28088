#include "ops/cuda/linear/linear_timer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/dtype.h"
#include "base/log.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/linear/fill_random.h"
#include "ops/cuda/linear/linear_kernels.h"

namespace tandem {
namespace {

float ToFloat(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

}  // namespace

LinearTimer::LinearTimer(Device* device, LinearRunner* runner, CudaStream* stream, const LinearTuning& tuning)
    : device_(device),
      runner_(runner),
      stream_(stream),
      tuning_(tuning),
      shape_(ShapeOf(AsCudaLinearWeight(tuning.weights[0]), tuning.y_dtype)),
      x_dtype_(tuning.weights[0]->dtype()) {}

LinearTimer::~LinearTimer() {
  for (const EventPair& pair : events_) {
    cudaEventDestroy(pair.begin);
    cudaEventDestroy(pair.end);
  }
}

Status LinearTimer::AllocateMatrices(int64_t max_rows) {
  x_ = {};
  y_ = {};
  flush_ = {};
  mlp_ = {};
  const auto rows = static_cast<size_t>(max_rows);
  const auto l2_bytes = static_cast<size_t>(runner_->target().l2_bytes);
  const auto take = [&](size_t bytes) {
    return device_->Allocate(bytes, MemoryKind::kDevice, "measuring linear operations");
  };
  TANDEM_ASSIGN_OR_RETURN(x_, take(rows * static_cast<size_t>(shape_.in_features) * DTypeSize(x_dtype_)));
  TANDEM_ASSIGN_OR_RETURN(y_,
                          take(rows * static_cast<size_t>(shape_.out_features) * DTypeSize(shape_.y_dtype)));
  TANDEM_ASSIGN_OR_RETURN(flush_, take(2 * l2_bytes / 256 * 256 + 256));
  if (shape_.is_gate_up) {
    TANDEM_ASSIGN_OR_RETURN(mlp_,
                            take(rows * static_cast<size_t>(shape_.out_features / 2) * DTypeSize(x_dtype_)));
  }
  constexpr uint64_t kSeed = 1;
  LaunchFillRandom(*stream_, Args(max_rows, 0).x, {kSeed, 1.0F});
  return {};
}

LinearArgs LinearTimer::Args(int64_t rows, size_t weight) const {
  LinearArgs args;
  args.x = MatrixView::Dense(x_.data(), x_dtype_, rows, shape_.in_features);
  args.weight = tuning_.weights[weight % tuning_.weights.size()];
  args.y = MatrixView::Dense(y_.data(), shape_.y_dtype, rows, shape_.out_features);
  return args;
}

GateUpArgs LinearTimer::ArgsOfGateUp(int64_t rows, size_t weight) const {
  const LinearArgs product = Args(rows, weight);
  return {.x = product.x,
          .weight = product.weight,
          .scratch = product.y,
          .y = MatrixView::Dense(mlp_.data(), x_dtype_, rows, shape_.out_features / 2)};
}

LinearTimer::Chain LinearTimer::Capture(int64_t rows, const LinearAlgorithm& algorithm,
                                        int64_t min_products) {
  return CaptureChain(rows, min_products,
                      [&](size_t weight) { return runner_->Run(*stream_, Args(rows, weight), algorithm); });
}

LinearTimer::Chain LinearTimer::CaptureGateUp(int64_t rows, const LinearAlgorithm& algorithm,
                                              int64_t min_products) {
  return CaptureChain(rows, min_products, [&](size_t weight) {
    return runner_->RunGateUp(*stream_, ArgsOfGateUp(rows, weight), algorithm);
  });
}

LinearTimer::Chain LinearTimer::CaptureChain(int64_t rows, int64_t min_products, const Multiply& multiply) {
  // Outside of a graph first: this loads the kernel, and here a refusal does no harm.
  if (!multiply(next_weight_)) return {};
  Chain chain;
  chain.num_products = NumProducts(rows, min_products);
  bool captured = true;
  stream_->BeginCapture();
  for (int64_t i = 0; i < chain.num_products; ++i) {
    captured = multiply(next_weight_++) && captured;
  }
  chain.graph = stream_->EndCapture();
  if (!captured) return {};
  return chain;
}

const LinearTimer::EventPair& LinearTimer::Events(size_t index) {
  while (events_.size() <= index) {
    EventPair& pair = events_.emplace_back();
    TANDEM_CUDA_CHECK(cudaEventCreate(&pair.begin));
    TANDEM_CUDA_CHECK(cudaEventCreate(&pair.end));
  }
  return events_[index];
}

void LinearTimer::EnqueueReplay(const Chain& chain, const EventPair& events) {
  // Takes the weights out of the L2, and is long enough for the graph to be enqueued meanwhile.
  LaunchReadAll(*stream_, flush_.data(), flush_.size_bytes(), y_.data());
  TANDEM_CUDA_CHECK(cudaEventRecord(events.begin, stream_->handle()));
  stream_->Launch(*chain.graph);
  TANDEM_CUDA_CHECK(cudaEventRecord(events.end, stream_->handle()));
}

double LinearTimer::ElapsedUs(const Chain& chain, const EventPair& events) {
  TANDEM_CUDA_CHECK(cudaEventSynchronize(events.end));
  float elapsed_ms = 0.0F;
  TANDEM_CUDA_CHECK(cudaEventElapsedTime(&elapsed_ms, events.begin, events.end));
  return double{elapsed_ms} * 1e3 / static_cast<double>(chain.num_products);
}

double LinearTimer::TimeUs(const Chain& chain) {
  const EventPair& events = Events(0);
  EnqueueReplay(chain, events);
  return ElapsedUs(chain, events);
}

std::vector<double> LinearTimer::MedianTimesUs(const std::vector<const Chain*>& chains, int num_rounds) {
  const auto rounds = static_cast<size_t>(num_rounds);
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < chains.size(); ++i) EnqueueReplay(*chains[i], Events(round * chains.size() + i));
  }
  std::vector<double> medians;
  for (size_t i = 0; i < chains.size(); ++i) {
    std::vector<double> times_us;
    for (size_t round = 0; round < rounds; ++round) {
      times_us.push_back(ElapsedUs(*chains[i], Events(round * chains.size() + i)));
    }
    const auto middle = times_us.begin() + static_cast<int64_t>(rounds / 2);
    std::nth_element(times_us.begin(), middle, times_us.end());
    medians.push_back(*middle);
  }
  return medians;
}

double LinearTimer::ReplayFor(const Chain& chain, double seconds) {
  // So many that the GPU does not come to rest between them, and no longer: where products are slow a single
  // replay takes as long as all should.
  constexpr double kMsAtOnce = 10.0;
  constexpr int64_t kMostAtOnce = 16;
  const EventPair& events = Events(0);
  int64_t num_replays = 0;
  int64_t at_once = 1;
  float elapsed_ms = 0.0F;
  TANDEM_CUDA_CHECK(cudaEventRecord(events.begin, stream_->handle()));
  while (elapsed_ms < seconds * 1e3) {
    for (int64_t i = 0; i < at_once; ++i) stream_->Launch(*chain.graph);
    num_replays += at_once;
    TANDEM_CUDA_CHECK(cudaEventRecord(events.end, stream_->handle()));
    TANDEM_CUDA_CHECK(cudaEventSynchronize(events.end));
    TANDEM_CUDA_CHECK(cudaEventElapsedTime(&elapsed_ms, events.begin, events.end));
    const double replay_ms = double{elapsed_ms} / static_cast<double>(num_replays);
    at_once = replay_ms * kMostAtOnce < kMsAtOnce ? kMostAtOnce
                                                  : std::max<int64_t>(1, std::llround(kMsAtOnce / replay_ms));
  }
  return double{elapsed_ms} * 1e3 / static_cast<double>(num_replays * chain.num_products);
}

std::vector<double> LinearTimer::SustainedTimesUs(const std::vector<const Chain*>& chains) {
  // Long beside the tens of milliseconds in which the clock follows the power.
  constexpr double kHeatSeconds = 0.3;
  constexpr double kSecondsPerChain = 0.2;
  std::vector<double> times_us;
  for (const Chain* chain : chains) {
    if (times_us.empty()) ReplayFor(*chain, kHeatSeconds);
    times_us.push_back(ReplayFor(*chain, kSecondsPerChain));
  }
  return times_us;
}

int64_t LinearTimer::NumProducts(int64_t rows, int64_t min_products) const {
  // Long enough to be measured, short enough for a hundred candidates; no weight twice if the L2 could then
  // hold it. Rates: rough ones of a large GPU.
  constexpr double kBytesPerUs = 4e6;
  constexpr double kFlopsPerUs = 6e8;
  constexpr double kWantedUs = 250.0;
  constexpr int64_t kMaxProducts = 32;
  const double weight_elements =
      static_cast<double>(shape_.out_features) * static_cast<double>(shape_.in_features);
  const double weight_bytes = weight_elements * static_cast<double>(DTypeSize(shape_.dtype));
  const double product_us =
      std::max(weight_bytes / kBytesPerUs, 2.0 * weight_elements * static_cast<double>(rows) / kFlopsPerUs);
  auto products = std::max(static_cast<int64_t>(kWantedUs / product_us) + 1, min_products);
  if (weight_bytes < 2.0 * runner_->target().l2_bytes) {
    const double all_bytes = weight_bytes * static_cast<double>(tuning_.weights.size());
    const auto distinct = static_cast<int64_t>(tuning_.weights.size());
    if (all_bytes < 4.0 * runner_->target().l2_bytes) products = std::min(products, distinct);
  }
  return std::clamp<int64_t>(products, 1, kMaxProducts);
}

std::vector<float> LinearTimer::ResultOf(int64_t rows, const LinearAlgorithm& algorithm) {
  return SampledRows(Args(rows, 0).y,
                     [&](size_t weight) { return runner_->Run(*stream_, Args(rows, weight), algorithm); });
}

std::vector<float> LinearTimer::ResultOfGateUp(int64_t rows, const LinearAlgorithm& algorithm) {
  return SampledRows(ArgsOfGateUp(rows, 0).y, [&](size_t weight) {
    return runner_->RunGateUp(*stream_, ArgsOfGateUp(rows, weight), algorithm);
  });
}

std::vector<float> LinearTimer::SampledRows(const MatrixView& y, const Multiply& multiply) {
  constexpr int64_t kMaxSampledRows = 16;
  const auto row_bytes = static_cast<size_t>(y.cols) * DTypeSize(y.dtype);
  // NaN in every type: what is not written does not pass.
  TANDEM_CUDA_CHECK(
      cudaMemsetAsync(y.data, 0xff, static_cast<size_t>(y.rows) * row_bytes, stream_->handle()));
  if (!multiply(0)) return {};
  const int64_t step = std::max<int64_t>(1, y.rows / kMaxSampledRows);
  const int64_t sampled = (y.rows + step - 1) / step;
  std::vector<std::byte> bytes(static_cast<size_t>(sampled) * row_bytes);
  TANDEM_CUDA_CHECK(cudaMemcpy2DAsync(bytes.data(), row_bytes, y.data, static_cast<size_t>(step) * row_bytes,
                                      row_bytes, static_cast<size_t>(sampled), cudaMemcpyDefault,
                                      stream_->handle()));
  stream_->Synchronize();
  std::vector<float> values(static_cast<size_t>(sampled * y.cols));
  const size_t element_bytes = DTypeSize(y.dtype);
  for (size_t i = 0; i < values.size(); ++i) values[i] = ToFloat(y.dtype, bytes.data() + i * element_bytes);
  return values;
}

}  // namespace tandem
