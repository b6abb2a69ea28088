#include "server/request_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/seconds_between.h"

namespace tandem {
namespace {

// More of a request's sequences have no spans of their own, and more changes of a tier no event.
constexpr size_t kMaxTracedSequences = 64;
constexpr size_t kMaxTierEvents = 32;
constexpr int kServerErrors = 500;
constexpr const char* kCachedTokens = "gen_ai.usage.cache_read.input_tokens";

std::vector<std::string_view> AllHeaders(const HttpRequest& request, std::string_view name) {
  std::vector<std::string_view> values;
  for (const HttpHeader& header : request.headers) {
    if (EqualsIgnoringCase(header.name, name)) values.emplace_back(header.value);
  }
  return values;
}

void AddUnlessThere(std::vector<std::string>* list, const std::string& text) {
  if (std::find(list->begin(), list->end(), text) == list->end()) list->push_back(text);
}

Attributes RequestAttributes(const GenerationRequest& request) {
  const SamplingParams& sampling = request.sampling;
  int64_t max_tokens = 0;
  for (const auto& prompt : request.prompts) max_tokens = std::max(max_tokens, prompt.max_tokens);
  Attributes attributes = {{"gen_ai.request.max_tokens", max_tokens},
                           {"gen_ai.request.temperature", double{sampling.temperature}},
                           {"gen_ai.request.top_p", double{sampling.top_p}},
                           {"gen_ai.request.frequency_penalty", double{sampling.frequency_penalty}},
                           {"gen_ai.request.presence_penalty", double{sampling.presence_penalty}},
                           {"gen_ai.request.stream", request.stream}};
  if (sampling.top_k > 0) attributes.emplace_back("gen_ai.request.top_k", int64_t{sampling.top_k});
  if (sampling.seed) attributes.emplace_back("gen_ai.request.seed", static_cast<int64_t>(*sampling.seed));
  if (request.n > 1) attributes.emplace_back("gen_ai.request.choice.count", request.n);
  if (request.prompts.size() > 1) {
    attributes.emplace_back("tandem.request.prompts", static_cast<int64_t>(request.prompts.size()));
  }
  if (request.flexible) attributes.emplace_back("tandem.request.service_tier", "flex");
  return attributes;
}

}  // namespace

struct RequestTrace::Recording {
  // Of one sequence.
  struct Sequence {
    std::optional<TimePoint> first_scheduled;
    std::optional<TimePoint> first_token;
    std::optional<TimePoint> last_token;
    std::optional<TimePoint> embedded;
    std::vector<std::string> tiers;                        // each once, in the order in which it came to them
    std::vector<std::pair<TimePoint, std::string>> moves;  // when it was seen elsewhere, and where
    std::string first_tier;
    std::string tier;  // where its KV lay last
    int64_t num_cpu_tier_tokens = 0;
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t output_tokens = 0;
    std::string finish_reason;  // empty: never submitted
  };

  Send send;
  Span server;
  std::chrono::nanoseconds steady_to_unix{};
  TimePoint arrival;
  bool streams = false;
  bool has_output = false;
  std::vector<Sequence> sequences;

  int64_t UnixNs(TimePoint time) const {
    return std::chrono::nanoseconds(time.time_since_epoch() + steady_to_unix).count();
  }

  void Set(std::string name, AttributeValue value) {
    server.attributes.emplace_back(std::move(name), std::move(value));
  }

  void Name(const char* operation, const std::string& model) {
    server.name = fmt::format("{} {}", operation, model);
    Set("gen_ai.operation.name", operation);
    Set("gen_ai.provider.name", "tandem");
    Set("gen_ai.request.model", model);
    Set("gen_ai.response.model", model);
  }

  Span Phase(const char* name, size_t choice_index, TimePoint start, TimePoint end) const {
    Span span;
    span.trace_id = server.trace_id;
    span.trace_state = server.trace_state;
    span.parent_id = server.span_id;
    span.span_id = NewSpanId();
    span.name = name;
    span.start_ns = UnixNs(start);
    span.end_ns = std::max(span.start_ns, UnixNs(end));
    if (sequences.size() > 1) {
      span.attributes.emplace_back("tandem.choice.index", static_cast<int64_t>(choice_index));
    }
    return span;
  }

  // end: of the request, for a sequence that got no further. Nobody was told when one without output was
  // scheduled: it has no phases.
  void AddPhases(size_t choice_index, TimePoint end, std::vector<Span>* spans) const {
    const Sequence& sequence = sequences[choice_index];
    if (!sequence.first_scheduled) return;
    spans->push_back(Phase("queue", choice_index, arrival, *sequence.first_scheduled));
    Span& prefill =
        spans->emplace_back(Phase("prefill", choice_index, *sequence.first_scheduled,
                                  sequence.first_token.value_or(sequence.embedded.value_or(end))));
    prefill.attributes.emplace_back("gen_ai.usage.input_tokens", sequence.prompt_tokens);
    prefill.attributes.emplace_back(kCachedTokens, sequence.cached_tokens);
    if (!sequence.first_token) return;
    prefill.attributes.emplace_back("tandem.kv.tier", sequence.first_tier);
    Span& decode =
        spans->emplace_back(Phase("decode", choice_index, *sequence.first_token, *sequence.last_token));
    decode.attributes.emplace_back("gen_ai.usage.output_tokens", sequence.output_tokens);
    decode.attributes.emplace_back("gen_ai.response.finish_reasons", std::vector{sequence.finish_reason});
    decode.attributes.emplace_back("tandem.kv.tiers", sequence.tiers);
    decode.attributes.emplace_back("tandem.kv.cpu_tier_tokens", sequence.num_cpu_tier_tokens);
    for (const auto& [time, tier] : sequence.moves) {
      decode.events.push_back(
          {.name = "tandem.kv.moved", .time_ns = UnixNs(time), .attributes = {{"tandem.kv.tier", tier}}});
    }
  }

  // Of all sequences together.
  void AddTotals() {
    if (sequences.empty()) return;
    std::vector<std::string> reasons;
    std::vector<std::string> tiers;
    int64_t output_tokens = 0;
    int64_t cpu_tier_tokens = 0;
    std::optional<TimePoint> first_token;
    for (const Sequence& sequence : sequences) {
      if (!sequence.finish_reason.empty()) reasons.push_back(sequence.finish_reason);
      output_tokens += sequence.output_tokens;
      cpu_tier_tokens += sequence.num_cpu_tier_tokens;
      for (const std::string& tier : sequence.tiers) AddUnlessThere(&tiers, tier);
      if (sequence.first_token)
        first_token = std::min(*sequence.first_token, first_token.value_or(TimePoint::max()));
    }
    Set("gen_ai.response.finish_reasons", std::move(reasons));
    Set("gen_ai.usage.output_tokens", output_tokens);
    Set("tandem.kv.tiers", std::move(tiers));
    Set("tandem.kv.cpu_tier_tokens", cpu_tier_tokens);
    if (streams && first_token) {
      Set("gen_ai.response.time_to_first_chunk", SecondsBetween(arrival, *first_token));
    }
  }

  void End() {
    const TimePoint end = std::chrono::steady_clock::now();
    AddTotals();
    server.end_ns = std::max(server.start_ns, UnixNs(end));
    std::vector<Span> spans;
    const size_t num_traced = std::min(sequences.size(), kMaxTracedSequences);
    spans.reserve(1 + 3 * num_traced);
    for (size_t i = 0; i < num_traced; ++i) AddPhases(i, end, &spans);
    spans.push_back(std::move(server));
    std::exchange(send, nullptr)(std::move(spans));
  }
};

RequestTrace::RequestTrace(std::optional<TraceStart> start, const HttpRequest& request, Send send) {
  if (!start) return;
  recording_ = std::make_shared<Recording>();
  Recording& recording = *recording_;
  recording.send = std::move(send);
  recording.arrival = request.received;
  recording.steady_to_unix = std::chrono::system_clock::now().time_since_epoch() -
                             std::chrono::steady_clock::now().time_since_epoch();
  Span& server = recording.server;
  server.trace_id = start->trace_id;
  server.span_id = NewSpanId();
  server.parent_id = start->parent_id.value_or(SpanId{});
  server.parent_is_remote = start->parent_id.has_value();
  server.trace_state = std::move(start->trace_state);
  server.kind = Span::Kind::kServer;
  server.name = fmt::format("{} {}", request.method, request.Path());
  server.start_ns = recording.UnixNs(request.received);
  recording.Set("http.request.method", request.method);
  recording.Set("url.path", std::string(request.Path()));
  recording.Set("tandem.request.id", request.id);
  if (const std::string_view agent = request.Header("User-Agent"); !agent.empty()) {
    recording.Set("user_agent.original", std::string(agent));
  }
}

RequestTrace RequestTrace::Begin(Tracer* tracer, const HttpRequest& request) {
  if (tracer == nullptr) return {};
  return {tracer->Begin(AllHeaders(request, "traceparent"), AllHeaders(request, "tracestate")), request,
          [tracer](std::vector<Span> spans) { tracer->Export(std::move(spans)); }};
}

void RequestTrace::Accept(const GenerationRequest& request, const ResponseIdentity& identity) const {
  if (!recording_) return;
  Recording& recording = *recording_;
  const char* operation = request.kind == GenerationRequest::Kind::kChat ? "chat" : "text_completion";
  recording.Name(operation, identity.model);
  recording.streams = request.stream;
  recording.Set("gen_ai.response.id", identity.id);
  for (auto& [name, value] : RequestAttributes(request)) recording.Set(std::move(name), std::move(value));
  int64_t prompt_tokens = 0;
  for (const GenerationRequest::Prompt& prompt : request.prompts) {
    prompt_tokens += std::ssize(prompt.tokens);
    for (int64_t i = 0; i < request.n; ++i) {
      recording.sequences.emplace_back().prompt_tokens = std::ssize(prompt.tokens);
    }
  }
  recording.Set("gen_ai.usage.input_tokens", prompt_tokens);
}

void RequestTrace::Accept(const EmbeddingRequest& request, const std::string& model) const {
  if (!recording_) return;
  Recording& recording = *recording_;
  recording.Name("embeddings", model);
  recording.Set("gen_ai.embeddings.dimension.count", request.dimensions);
  for (const std::vector<int32_t>& input : request.inputs) {
    recording.sequences.emplace_back().prompt_tokens = std::ssize(input);
  }
  recording.Set("gen_ai.usage.input_tokens", request.num_tokens());
}

void RequestTrace::OnOutput(size_t choice_index, const RequestOutput& output, TimePoint time) const {
  if (!recording_) return;
  recording_->has_output = true;
  Recording::Sequence& sequence = recording_->sequences[choice_index];
  sequence.first_scheduled = output.first_scheduled;
  sequence.cached_tokens = output.num_cached_tokens;
  if (!output.embedding.empty()) sequence.embedded = time;
  if (output.tokens.empty()) return;
  const std::string tier = output.cpu_tier ? "cpu" : "gpu";
  if (!sequence.first_token) {
    sequence.first_token = time;
    sequence.first_tier = tier;
  } else if (tier != sequence.tier && sequence.moves.size() < kMaxTierEvents) {
    sequence.moves.emplace_back(time, tier);
  }
  sequence.last_token = time;
  if (tier != sequence.tier) AddUnlessThere(&sequence.tiers, tier);
  sequence.tier = tier;
  if (output.cpu_tier) sequence.num_cpu_tier_tokens += std::ssize(output.tokens);
}

void RequestTrace::EndSequence(size_t choice_index, std::string_view reason, int64_t num_tokens) const {
  if (!recording_) return;
  Recording::Sequence& sequence = recording_->sequences[choice_index];
  sequence.finish_reason = reason;
  sequence.output_tokens = num_tokens;
}

void RequestTrace::SetCachedTokens(int64_t num_tokens) const {
  if (recording_ && recording_->send) recording_->Set(kCachedTokens, num_tokens);
}

void RequestTrace::Finish() const {
  if (!recording_ || !recording_->send) return;
  recording_->Set("http.response.status_code", int64_t{200});
  recording_->End();
}

void RequestTrace::Fail(const ApiError& error) const {
  if (!recording_ || !recording_->send) return;
  Recording& recording = *recording_;
  // A stream has begun with 200, whatever comes then.
  const bool has_begun = recording.streams && recording.has_output;
  recording.Set("http.response.status_code", int64_t{has_begun ? 200 : error.status});
  recording.Set("error.type", error.code.empty() ? std::to_string(error.status) : error.code);
  // What a client did wrong is no failure of the server's.
  recording.server.failed = error.status >= kServerErrors;
  if (recording.server.failed) recording.server.error = error.message;
  recording.End();
}

void RequestTrace::Abort() const {
  if (!recording_ || !recording_->send) return;
  recording_->Set("error.type", "client_gone");
  recording_->End();
}

std::string RenderTraceMetrics(const OtlpCounts& counts) {
  std::string text = fmt::format(
      "# HELP tandem:trace_spans_sent_total Spans that the receiver of traces has taken.\n"
      "# TYPE tandem:trace_spans_sent_total counter\ntandem:trace_spans_sent_total {}\n"
      "# HELP tandem:trace_spans_dropped_total Spans that never reached it, by reason.\n"
      "# TYPE tandem:trace_spans_dropped_total counter\n",
      counts.sent);
  for (const auto& [reason, count] :
       {std::pair{"queue_full", counts.queue_full}, std::pair{"unreachable", counts.unreachable},
        std::pair{"refused", counts.refused}}) {
    text += fmt::format("tandem:trace_spans_dropped_total{{reason=\"{}\"}} {}\n", reason, count);
  }
  return text;
}

}  // namespace tandem
