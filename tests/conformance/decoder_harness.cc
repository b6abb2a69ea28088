#include "conformance/decoder_harness.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "execute/int_inputs.h"
#include "kv/kv_cache_options.h"
#include "model/dummy_weights.h"
#include "plan/plan_printer.h"
#include "plan/plan_testing.h"
#include "plan/plan_validator.h"

namespace tandem {
namespace {

SamplingInput SamplingOf(const Request& request) {
  const SamplingParams& params = request.sampling;
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .top_k = params.top_k,
          .min_p = params.min_p,
          .presence_penalty = params.presence_penalty,
          .frequency_penalty = params.frequency_penalty,
          .repetition_penalty = params.repetition_penalty,
          .seed = request.seed,
          .num_top_logprobs = params.num_top_logprobs,
          .num_given_top_logprobs = params.num_prompt_top_logprobs,
          .prompt_tokens = request.prompt_tokens,
          .output_tokens = request.output_tokens,
          .logit_bias = params.logit_bias};
}

}  // namespace

bool DecoderHarness::HasGpus(int num_gpus) {
  EngineOptions options;
  options.device = "cuda";
  options.tensor_parallel_size = num_gpus;
  // As where shards are created first of all.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  return CreateBackend(options).ok();
}

std::vector<DType> DecoderHarness::DTypes(const std::string& device) {
  EngineOptions options;
  options.device = device;
  return CreateBackend(options).value().dtypes;
}

DType DecoderHarness::HalfType(const std::string& device) {
  const std::vector<DType> dtypes = DTypes(device);
  return *std::ranges::find_if(dtypes, [](DType dtype) { return DTypeSize(dtype) == 2; });
}

DecoderHarness::DecoderHarness(const std::string& model_path, const Options& options) {
  EngineOptions engine_options;
  engine_options.device = options.device;
  engine_options.cpu_threads = options.num_threads;
  engine_options.gpu_sm_limit = options.sm_limit;
  engine_options.quantization = options.quantization;
  backend_ = CreateBackend(engine_options).value();
  Device* device = backend_.device.get();
  Ops* ops = backend_.ops.get();
  const auto checkpoint = Checkpoint::Open(model_path).value();
  ModelConfig config = checkpoint->config();
  if (options.random_layers > 0) config.num_layers = options.random_layers;
  DecoderWeights weights =
      options.random_layers > 0
          ? MakeDummyWeights(
                config, device, ops,
                {.dtype = options.dtype, .max_model_len = options.max_model_len, .show_progress = false})
                .value()
          : LoadDecoderWeights(*checkpoint, device, ops,
                               {.dtype = options.dtype,
                                .quantization = options.quantization,
                                .max_model_len = options.max_model_len,
                                .num_threads = options.num_threads,
                                .show_progress = false})
                .value();
  decoder_ = std::make_unique<Decoder>(config, options.dtype, std::move(weights), ops);
  const KvShape shape = {.format = KvFormat::Plain(options.dtype),
                         .num_kv_heads = config.num_kv_heads,
                         .head_dim = config.head_dim};
  const KvCacheOptions cache = {.num_layers = config.num_layers,
                                .gpu = {.shape = shape, .num_blocks = options.gpu_blocks},
                                .cpu = {.shape = shape, .num_blocks = options.cpu_blocks},
                                .cpu_parts = options.cpu_parts};
  memory_ = KvMemory::Create(device, cache).value();
  books_ = KvBooks::Create(shape.block_size, {options.gpu_blocks, options.cpu_blocks}).value();
  auto executor = Executor::Create(device, ops, decoder_.get(), memory_.get(),
                                   {.max_rows = options.max_rows,
                                    .cpu_attention = {.num_threads = options.num_threads},
                                    .max_cpu_rows = options.max_cpu_rows,
                                    .max_rider_rows = options.max_rider_rows,
                                    .max_transit_tokens = options.max_rows,
                                    .stall_timeout = options.stall_timeout,
                                    .graph_batch_sizes = options.graph_batch_sizes,
                                    .graph_rider_rows = options.graph_rider_rows})
                      .value();
  workers_ = std::make_unique<WorkerGroup>(std::move(executor), std::vector<std::unique_ptr<ShardExecutor>>(),
                                           nullptr);
  max_rider_rows_ = options.max_rider_rows;
  workers_->WarmUp();
}

DecoderHarness::~DecoderHarness() = default;

std::vector<float> DecoderHarness::LastLogits(const std::vector<int32_t>& prompt, int64_t chunk_size) {
  constexpr SequenceId kSequence = 1U << 30;
  const auto prompt_len = static_cast<int64_t>(prompt.size());
  const int64_t num_layers = config().num_layers;
  TANDEM_CHECK(books_->Reserve(kSequence, Tier::kGpu, prompt_len), "no room for {} tokens", prompt_len);
  Device* device = backend_.device.get();
  Ops* ops = backend_.ops.get();
  auto stream = device->CreateStream(StreamKind::kCompute, "logits");
  const RowBuffers buffers =
      RowBuffers::Allocate(device, *decoder_, std::min(chunk_size, prompt_len)).value();
  std::vector<float> logits(static_cast<size_t>(config().vocab_size));
  const Buffer device_logits =
      device->Allocate(logits.size() * sizeof(float), MemoryKind::kDevice, "logits").value();
  const Buffer gathered = device
                              ->Allocate(static_cast<size_t>(config().hidden_size) * sizeof(float),
                                         MemoryKind::kDevice, "gathered")
                              .value();
  IntInputs inputs = IntInputs::Allocate(device, 3 * chunk_size + 1).value();
  const auto plan = ops->CreateAttentionPlan({.max_rows = chunk_size,
                                              .max_sequences = 1,
                                              .max_blocks = books_->total_blocks(Tier::kGpu),
                                              .kv = memory_->layout(Tier::kGpu).shape,
                                              .num_heads = config().num_heads,
                                              .sliding_window = config().sliding_window})
                        .value();

  for (int64_t start = 0; start < prompt_len; start += chunk_size) {
    const int64_t num_rows = std::min(chunk_size, prompt_len - start);
    std::vector<int32_t> positions;
    std::vector<int32_t> slots;
    for (int64_t position = start; position < start + num_rows; ++position) {
      positions.push_back(static_cast<int32_t>(position));
      slots.push_back(books_->SlotToWrite(kSequence, position));
    }
    AttentionBatch batch;
    batch.num_rows = num_rows;
    const auto& table = books_->block_table(kSequence);
    const auto num_blocks = static_cast<std::ptrdiff_t>(books_->BlocksFor(start + num_rows));
    batch.sequences.push_back(
        {.row_begin = 0,
         .num_rows = num_rows,
         .context_len = start + num_rows,
         .block_table = std::vector<int32_t>(table.begin(), table.begin() + num_blocks)});
    ops->PlanAttention(*stream, batch, plan.get());
    RowBatch rows(buffers, num_rows);
    inputs.Clear();
    rows.token_ids =
        inputs.Add(std::span(prompt).subspan(static_cast<size_t>(start), static_cast<size_t>(num_rows)));
    rows.positions = inputs.Add(positions);
    rows.slots = inputs.Add(slots);
    const auto last = static_cast<int32_t>(num_rows - 1);
    const int32_t* last_index = inputs.Add({&last, 1});
    inputs.Upload(*stream);
    decoder_->Embed(*stream, &rows);
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      const KvLayerView kv = memory_->LayerView(Tier::kGpu, layer);
      decoder_->PreProjection(*stream, layer, {KvRows{.num_rows = num_rows, .kv = kv}}, &rows);
      decoder_->Attend(*stream, *plan, kv, 0, num_rows, rows);
      decoder_->PostProjection(*stream, layer, &rows);
    }
    if (start + num_rows == prompt_len) {
      decoder_->FinalNorm(*stream, &rows);
      decoder_->Logits(*stream, rows, last_index,
                       MatrixView::Dense(gathered.data(), decoder_->dtype(), 1, config().hidden_size),
                       MatrixView::Dense(device_logits.data(), DType::kF32, 1, config().vocab_size));
      stream->Copy(logits.data(), device_logits.data(), device_logits.size_bytes());
    }
    stream->Synchronize();
  }
  books_->Release(kSequence);
  return logits;
}

Request& DecoderHarness::AddRequest(SequenceId id, std::vector<int32_t> prompt) {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt_tokens = std::move(prompt);
  request->sampling.temperature = 0.0F;
  return *(requests_[id] = std::move(request));
}

void DecoderHarness::CheckPlan(const IterationPlan& plan) const {
  const auto find = [this](SequenceId id) -> std::optional<PlannedSequence> {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return std::nullopt;
    const Request& request = *found->second;
    std::optional<int64_t> first_logits;
    if (request.sampling.num_prompt_top_logprobs >= 0 && request.output_tokens.empty()) first_logits = 0;
    return PlannedSequence{.num_tokens = request.num_tokens(),
                           .num_computed = request.num_computed_tokens,
                           .tier = books_->tier_of(id),
                           .first_logits = first_logits,
                           .num_drafted = NumDrafted(id)};
  };
  const Status valid = ValidatePlan(plan, {.num_layers = config().num_layers,
                                           .max_rows = 1 << 20,
                                           .max_rider_rows = max_rider_rows_,
                                           .in_flight = &in_flight_,
                                           .find_sequence = find});
  TANDEM_CHECK(valid.ok(), "{}\n{}", valid.error().message, PrintPlan(plan));
}

int64_t DecoderHarness::NumDrafted(SequenceId id) const {
  const auto found = drafts_.find(id);
  return found == drafts_.end() ? 0 : static_cast<int64_t>(found->second.size());
}

RowSpan DecoderHarness::NextDraft(SequenceId id) const {
  RowSpan span = NextRow(id);
  span.num_tokens += NumDrafted(id);
  return span;
}

SpanInput DecoderHarness::InputOf(const RowSpan& span) const {
  const Request& request = this->request(span.sequence);
  SpanInput input;
  for (int64_t position = span.start; position < span.end(); ++position) {
    const int64_t drafted = position - request.num_tokens();
    input.token_ids.push_back(drafted < 0 ? request.TokenAt(position)
                                          : drafts_.at(span.sequence)[static_cast<size_t>(drafted)]);
  }
  input.block_table = books_->block_table(span.sequence);
  input.block_table.resize(static_cast<size_t>(books_->BlocksFor(span.end())));
  if (span.num_sampled() == 0) return input;
  input.sampling = SamplingOf(request);
  for (int64_t position = request.num_tokens(); position < span.end(); ++position) {
    input.sampling->output_tokens.push_back(input.token_ids[static_cast<size_t>(position - span.start)]);
  }
  for (int64_t next = span.start + span.sampled_from + 1;
       next < std::min(span.end() + 1, request.num_tokens()); ++next)
    input.given_tokens.push_back(request.TokenAt(next));
  return input;
}

IterationInput DecoderHarness::InputOf(const IterationPlan& plan) {
  IterationInput input;
  input.plan = plan;
  input.moves = ApplyMoves(plan.moves, books_.get());
  const auto of_spans = [this](const std::vector<RowSpan>& spans) {
    std::vector<SpanInput> inputs;
    for (const RowSpan& span : spans) {
      const int64_t num_tokens = std::max(span.end(), request(span.sequence).num_tokens());
      TANDEM_CHECK(books_->Reserve(span.sequence, span.tier, num_tokens), "no room for sequence {}",
                   span.sequence);
      inputs.push_back(InputOf(span));
    }
    return inputs;
  };
  input.main = of_spans(plan.main.spans);
  for (const CohortStep& step : plan.cohorts) {
    const bool may_end = !step.visits.empty() && step.visits.back().layer == config().num_layers - 1;
    input.cohorts.push_back(InFlight(step.cohort) == nullptr || may_end ? of_spans(step.rows)
                                                                        : std::vector<SpanInput>());
  }
  return input;
}

// What is drawn holds as long as the tokens before it are those that were drawn.
void DecoderHarness::Append(const SequenceResult& result) {
  Request& request = *requests_.at(result.sequence);
  request.num_computed_tokens = result.num_computed - NumDrafted(result.sequence);
  const std::vector<int32_t> drafts = std::exchange(drafts_[result.sequence], {});
  for (size_t i = 0; i < result.tokens.size(); ++i) {
    request.output_tokens.push_back(result.tokens[i].token);
    if (i == drafts.size() || drafts[i] != result.tokens[i].token) break;
    ++request.num_computed_tokens;
  }
}

IterationResult DecoderHarness::Run(const IterationPlan& plan) {
  CheckPlan(plan);
  for (const CohortId id : plan.dropped)
    TANDEM_CHECK(DropCohort(id), "CPU attention has stalled with cohort {}", id);
  const Status started = workers_->Start(InputOf(plan));
  TANDEM_CHECK(started.ok(), "{}", started.error().message);
  IterationResult result = workers_->Finish();
  for (const SequenceResult& sequence : result.sequences) {
    if (!sequence.failed) Append(sequence);
  }
  if (result.stalled) in_flight_.clear();
  for (size_t i = 0; i < plan.cohorts.size() && !result.stalled; ++i) {
    const CohortStep& step = plan.cohorts[i];
    const CohortProgress& progress = result.cohorts.at(i);
    TANDEM_CHECK(progress.cohort == step.cohort, "progress of cohort {} instead of {}", progress.cohort,
                 step.cohort);
    std::erase_if(in_flight_, [&](const InFlightCohort& other) { return other.cohort == step.cohort; });
    if (progress.cursor != kEntry) in_flight_.push_back({step.cohort, step.rows, progress.cursor});
  }
  return result;
}

const InFlightCohort* DecoderHarness::InFlight(CohortId id) const {
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [id](const InFlightCohort& cohort) { return cohort.cohort == id; });
  return found == in_flight_.end() ? nullptr : &*found;
}

bool DecoderHarness::DropCohort(CohortId id) {
  std::erase_if(in_flight_, [id](const InFlightCohort& cohort) { return cohort.cohort == id; });
  const bool dropped = workers_->DropCohort(id);
  if (!dropped) in_flight_.clear();
  return dropped;
}

void DecoderHarness::Prefill(SequenceId id) {
  IterationPlan plan;
  plan.main.spans.push_back(testing::Chunk(id, 0, request(id).num_tokens(), true));
  Run(plan);
}

}  // namespace tandem
