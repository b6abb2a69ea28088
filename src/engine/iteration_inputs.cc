#include "engine/iteration_inputs.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

// The last tokens of bad words whose others the output ends with.
void AddEndsOfBadWords(const Request& request, std::vector<int32_t>* banned) {
  const std::vector<int32_t>& output = request.output_tokens;
  for (const std::vector<int32_t>& word : request.sampling.bad_words) {
    const std::span begin(word.data(), word.size() - 1);
    const bool has_come =
        begin.size() <= output.size() && std::equal(begin.rbegin(), begin.rend(), output.rbegin());
    if (has_come) banned->push_back(word.back());
  }
}

// num_to_come: tokens of its output that are not known yet.
SamplingInput SamplingOf(const Request& request, int64_t num_to_come) {
  const SamplingParams& params = request.sampling;
  SamplingInput sampling;
  sampling.temperature = params.temperature;
  sampling.top_p = params.top_p;
  sampling.top_k = std::max(0, params.top_k);
  sampling.min_p = params.min_p;
  sampling.presence_penalty = params.presence_penalty;
  sampling.frequency_penalty = params.frequency_penalty;
  sampling.repetition_penalty = params.repetition_penalty;
  sampling.seed = request.seed;
  sampling.num_top_logprobs = params.num_top_logprobs;
  sampling.num_given_top_logprobs = params.num_prompt_top_logprobs;
  const bool repeats = params.repetition_penalty != 1.0F;
  if (repeats) sampling.prompt_tokens = request.prompt_tokens;
  if (repeats || params.presence_penalty != 0 || params.frequency_penalty != 0)
    sampling.output_tokens = request.output_tokens;
  sampling.logit_bias = params.logit_bias;
  if (static_cast<int64_t>(request.output_tokens.size()) + num_to_come < params.min_tokens)
    sampling.banned_tokens = request.end_tokens;
  AddEndsOfBadWords(request, &sampling.banned_tokens);
  sampling.allowed_tokens = request.allowed_tokens;
  return sampling;
}

// Tokens of a span that the iteration before, which runs still, is to draw.
int64_t NumToCome(const RowSpan& span, const Request& request) {
  return std::max<int64_t>(0, span.end() - request.num_tokens());
}

// What the device reads where rows enter the layers.
void AddTokens(const RowSpan& span, const Request& request, const KvBooks& books, SpanInput* input) {
  books.CheckWritable(span.sequence, span.start, span.end());
  input->token_ids.reserve(static_cast<size_t>(span.num_tokens));
  const int64_t end_known = std::min(span.end(), request.num_tokens());
  for (int64_t position = span.start; position < end_known; ++position)
    input->token_ids.push_back(request.TokenAt(position));
  TANDEM_CHECK(NumToCome(span, request) <= 1, "sequence {}: its span ends at {}, it has {} tokens",
               span.sequence, span.end(), request.num_tokens());
  if (NumToCome(span, request) > 0) input->token_ids.push_back(kTokenToCome);
  const std::vector<int32_t>& table = books.block_table(span.sequence);
  const auto num_blocks = static_cast<std::ptrdiff_t>(books.BlocksFor(span.end()));
  input->block_table.assign(table.begin(), table.begin() + num_blocks);
  input->pooling = request.pooling;
}

// What it reads where they leave them. masks: null if they do not leave them in this iteration.
void AddSampling(const RowSpan& span, const Request& request, GrammarMasks* masks, SpanInput* input) {
  if (span.num_sampled() == 0) return;
  input->sampling = SamplingOf(request, NumToCome(span, request));
  const bool draws = span.end() == request.num_tokens();
  if (request.grammar != nullptr && draws && masks != nullptr)
    input->sampling->coming_mask = masks->Add(request.grammar, request.output_tokens);
  const int64_t last_given = std::min(span.end(), request.num_tokens() - 1);
  for (int64_t position = span.start + span.sampled_from; position < last_given; ++position)
    input->given_tokens.push_back(request.TokenAt(position + 1));
}

std::vector<SpanInput> InputsOf(const CohortStep& step, const KvBooks& books, int64_t num_layers,
                                const FindRequest& find_request, GrammarMasks* masks) {
  const bool enters = step.cursor == kEntry && !step.visits.empty();
  const bool ends = !step.visits.empty() && step.visits.back().layer == num_layers - 1;
  std::vector<SpanInput> inputs;
  if (!enters && !ends) return inputs;
  inputs.reserve(step.rows.size());
  for (const RowSpan& row : step.rows) {
    const Request& request = find_request(row.sequence);
    SpanInput& input = inputs.emplace_back();
    AddTokens(row, request, books, &input);
    AddSampling(row, request, ends ? masks : nullptr, &input);
  }
  return inputs;
}

}  // namespace

std::optional<int64_t> EchoFrom(const Request& request) {
  const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
  const bool asked = request.sampling.num_prompt_top_logprobs >= 0;
  if (!asked || request.num_reported_prompt_logprobs >= prompt_len - 1) return std::nullopt;
  return request.num_reported_prompt_logprobs;
}

IterationInput MakeIterationInput(IterationPlan plan, std::vector<BlockMove> moves, const KvBooks& books,
                                  int64_t num_layers, const FindRequest& find_request, GrammarMasks* masks) {
  IterationInput input;
  input.moves = std::move(moves);
  input.main.reserve(plan.main.spans.size());
  for (const RowSpan& span : plan.main.spans) {
    const Request& request = find_request(span.sequence);
    SpanInput& of_span = input.main.emplace_back();
    AddTokens(span, request, books, &of_span);
    AddSampling(span, request, masks, &of_span);
  }
  input.cohorts.reserve(plan.cohorts.size());
  for (const CohortStep& step : plan.cohorts)
    input.cohorts.push_back(InputsOf(step, books, num_layers, find_request, masks));
  input.masks_ready = masks->Launch();
  input.plan = std::move(plan);
  return input;
}

}  // namespace tandem
