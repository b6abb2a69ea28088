// What Executor is made of, and what it does before the first iteration.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "execute/executor.h"
#include "execute/running_iteration.h"

namespace tandem {
namespace {

int64_t MaxCpuRows(const ExecutorOptions& options) {
  return options.max_cpu_rows > 0 ? options.max_cpu_rows : options.max_rows;
}

int64_t MaxFlightRows(const ExecutorOptions& options) {
  return options.max_flight_rows > 0 ? options.max_flight_rows : MaxCpuRows(options);
}

// Staggered over all boundaries, if cohorts can ride.
int64_t UsualCohorts(const ExecutorOptions& options, int64_t num_layers) {
  return options.max_rider_rows > 0 ? num_layers + 1 : 1;
}

// With riders only where the rows together are a size that there is without: products of another size would
// have to be tuned, and a few rows more or less cost next to nothing. Of the sizes beyond there is the
// largest.
std::vector<GraphShape> ShapesFor(const ExecutorOptions& options, bool riders) {
  const std::vector<int64_t>& sizes = options.graph_batch_sizes;
  std::vector<GraphShape> shapes;
  for (const int64_t size : sizes) {
    shapes.push_back({.num_rows = size});
    if (!riders) continue;
    for (const int64_t rider_rows : options.graph_rider_rows) {
      const bool known = std::find(sizes.begin(), sizes.end(), size + rider_rows) != sizes.end();
      if (known || size == sizes.back()) shapes.push_back({.num_rows = size, .num_rider_rows = rider_rows});
    }
  }
  return shapes;
}

int64_t LogitsSliceRows(const ExecutorOptions& options, bool riders) {
  int64_t rows = options.logits_slice_rows;
  for (const GraphShape& shape : ShapesFor(options, riders)) rows = std::max(rows, shape.total_rows());
  return rows;
}

std::vector<int64_t> Distinct(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

Executor::Executor(Device* device, Ops* ops, const Decoder* decoder, const KvBooks* books, KvMemory* memory)
    : device_(device),
      ops_(ops),
      decoder_(decoder),
      books_(books),
      memory_(memory),
      moves_(std::make_unique<TierMoves>(device, ops, memory, decoder->config().num_layers)),
      iteration_end_(device->CreateEvent()),
      compute_stream_(device->CreateStream(StreamKind::kCompute, "compute")),
      copy_stream_(device->CreateStream(StreamKind::kCopy, "copy")) {}

Executor::~Executor() {
  compute_stream_->Synchronize();
  if (cpu_attention_) {
    // What riders have submitted may never get its Q/K/V.
    for (auto& [id, cohort] : cohorts_) cohort->cpu_rows->Abort();
    cpu_attention_->WaitIdle();
  }
  copy_stream_->Synchronize();
}

AttentionCapacity Executor::CapacityFor(int64_t max_rows, int64_t max_blocks) const {
  const ModelConfig& config = decoder_->config();
  return {.max_rows = max_rows,
          .max_sequences = max_rows,
          // The block of a token that is being computed is reserved already.
          .max_blocks = max_blocks,
          .kv = memory_->layout(Tier::kGpu).shape,
          .num_heads = config.num_heads,
          .sliding_window = config.sliding_window};
}

Result<std::unique_ptr<Executor>> Executor::Create(Device* device, Ops* ops, const Decoder* decoder,
                                                   const KvBooks* books, KvMemory* memory,
                                                   const ExecutorOptions& options) {
  auto executor = std::unique_ptr<Executor>(new Executor(device, ops, decoder, books, memory));
  const bool cpu_tier = books->total_blocks(Tier::kCpu) > 0;
  const int64_t rider_rows = cpu_tier ? options.max_rider_rows : 0;
  TANDEM_ASSIGN_OR_RETURN(executor->main_buffers_,
                          RowBuffers::Allocate(device, *decoder, options.max_rows + rider_rows));
  // Token ids, positions, slots.
  TANDEM_ASSIGN_OR_RETURN(executor->main_inputs_,
                          IntInputs::Allocate(device, 3 * (options.max_rows + rider_rows)));
  executor->max_rows_ = options.max_rows;
  executor->stall_timeout_ = options.stall_timeout;
  const int64_t max_sampled = options.max_rows + MaxCpuRows(options) + rider_rows;
  TANDEM_ASSIGN_OR_RETURN(
      executor->logits_stage_,
      LogitsStage::Create(device, decoder, ops, max_sampled, LogitsSliceRows(options, rider_rows > 0)));
  TANDEM_ASSIGN_OR_RETURN(executor->gpu_plan_, ops->CreateAttentionPlan(executor->CapacityFor(
                                                   options.max_rows, books->total_blocks(Tier::kGpu))));
  executor->timeline_ = options.timeline;
  for (IterationStamps* stamps : {&executor->stamps_, &executor->copy_stamps_, &executor->out_stamps_,
                                  &executor->in_stamps_, &executor->rider_stamps_}) {
    TANDEM_ASSIGN_OR_RETURN(*stamps, IterationStamps::Allocate(device, decoder->config().num_layers,
                                                               options.timeline != nullptr));
  }
  if (options.timeline != nullptr) executor->clock_offset_ns_ = device->ClockOffsetNs();
  if (cpu_tier) TANDEM_RETURN_IF_ERROR(executor->CreateCpuSide(options));
  executor->CreateGraphs(options);
  return executor;
}

void Executor::CreateGraphs(const ExecutorOptions& options) {
  graph_shapes_ = ShapesFor(options, riding_ != nullptr);
  for (const GraphShape& shape : graph_shapes_) {
    TANDEM_CHECK(
        shape.num_rows > 0 && shape.num_rows <= max_rows_ && shape.num_rider_rows <= options.max_rider_rows,
        "graphs of {} rows and {} riders, {} and {} in an iteration", shape.num_rows, shape.num_rider_rows,
        max_rows_, options.max_rider_rows);
  }
  graphs_ = std::make_unique<DecodeGraphs>(
      DecodeGraphs::Parts{.decoder = decoder_,
                          .memory = memory_,
                          .buffers = &main_buffers_,
                          .inputs = &main_inputs_,
                          .plan = gpu_plan_.get(),
                          .logits_stage = logits_stage_.get(),
                          .stamps = &stamps_,
                          .riding = riding_.get(),
                          .rider_stamps = riding_ != nullptr ? &rider_stamps_ : nullptr});
}

Status Executor::CreateCpuSide(const ExecutorOptions& options) {
  out_stream_ = device_->CreateStream(StreamKind::kCopy, "rows to the host");
  in_stream_ = device_->CreateStream(StreamKind::kCopy, "rows from the host");
  CpuAttentionOptions cpu_options = options.cpu_attention;
  cpu_options.timeline = options.timeline;
  cpu_attention_ = std::make_unique<CpuAttention>(cpu_options);
  const CpuRowsParts parts = {.device = device_,
                              .decoder = decoder_,
                              .books = books_,
                              .memory = memory_,
                              .cpu_attention = cpu_attention_.get(),
                              .compute_stream = compute_stream_.get(),
                              .out_stream = out_stream_.get(),
                              .in_stream = in_stream_.get(),
                              .out_stamps = &out_stamps_,
                              .in_stamps = &in_stamps_};
  TANDEM_ASSIGN_OR_RETURN(main_cpu_rows_, CpuTierRows::Create(parts, MaxCpuRows(options), "main"));
  const int64_t num_cohorts = UsualCohorts(options, decoder_->config().num_layers);
  cohort_pool_ = std::make_unique<CohortPool>(parts, MaxFlightRows(options), num_cohorts);
  // So that the memory of the usual cohorts is there before the first iteration.
  TANDEM_RETURN_IF_ERROR(cohort_pool_->Fill(num_cohorts));
  TANDEM_ASSIGN_OR_RETURN(cohort_buffers_, RowBuffers::Allocate(device_, *decoder_, MaxCpuRows(options)));
  if (options.max_rider_rows > 0) {
    TANDEM_ASSIGN_OR_RETURN(riding_, Riding::Create({.device = device_,
                                                     .ops = ops_,
                                                     .decoder = decoder_,
                                                     .compute_stream = compute_stream_.get(),
                                                     .stamps = &rider_stamps_},
                                                    options.max_rider_rows, MaxFlightRows(options)));
    cpu_attention_->WatchProgress(riding_->progress());
  }
  TANDEM_ASSIGN_OR_RETURN(transit_,
                          KvTransit::Create(device_, ops_, books_, memory_, options.max_transit_tokens));
  TANDEM_ASSIGN_OR_RETURN(transit_plan_,
                          ops_->CreateAttentionPlan(CapacityFor(options.max_rows, transit_->max_blocks())));
  return {};
}

size_t Executor::BytesFor(const Decoder& decoder, const ExecutorOptions& options, const KvShape* transit) {
  const int64_t rider_rows = transit != nullptr ? options.max_rider_rows : 0;
  size_t bytes = RowBuffers::BytesFor(decoder, options.max_rows + rider_rows) +
                 LogitsStage::BytesFor(decoder, LogitsSliceRows(options, rider_rows > 0));
  if (transit != nullptr) {
    bytes += RowBuffers::BytesFor(decoder, MaxCpuRows(options)) +
             CohortPool::BytesFor(decoder, MaxFlightRows(options),
                                  UsualCohorts(options, decoder.config().num_layers)) +
             KvTransit::BytesFor(*transit, options.max_transit_tokens);
  }
  return bytes;
}

void Executor::WarmUp() {
  std::vector<int64_t> graph_rows;
  graph_rows.reserve(graph_shapes_.size());
  for (const GraphShape& shape : graph_shapes_) graph_rows.push_back(shape.total_rows());
  graph_rows = Distinct(std::move(graph_rows));
  // Besides the graphs': chunks of prompts, up to the largest iteration.
  std::vector<int64_t> row_counts = graph_rows;
  constexpr int64_t kFewestChunkRows = 512;
  for (int64_t rows = kFewestChunkRows; rows < max_rows_; rows *= 2) row_counts.push_back(rows);
  row_counts.push_back(max_rows_);
  decoder_->Tune(*compute_stream_, Distinct(std::move(row_counts)), graph_rows);
  graphs_->Capture(*compute_stream_, graph_shapes_);
}

}  // namespace tandem
