#include "server/request_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Key;
using testing::Not;
using testing::Pair;
using TestTime = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

const TraceStart kStart = {.trace_id = {1}, .parent_id = SpanId{2}, .trace_state = "a=1"};

class RequestTraceTest : public testing::Test {
 protected:
  RequestTraceTest() : arrival_(std::chrono::steady_clock::now() - std::chrono::seconds(10)) {
    http_.method = "POST";
    http_.target = "/v1/chat/completions?x=1";
    http_.headers = {{"user-agent", "test"}};
    http_.id = "req-1";
    http_.received = arrival_;
    request_.kind = GenerationRequest::Kind::kChat;
    request_.prompts = {{.tokens = {1, 2, 3}, .text = {}, .max_tokens = 7}};
  }

  RequestTrace Make() {
    return {kStart, http_, [this](std::vector<Span> spans) {
              EXPECT_TRUE(spans_.empty()) << "sent twice";
              spans_ = std::move(spans);
            }};
  }

  static ResponseIdentity Identity() { return {.id = "chatcmpl-1", .model = "model"}; }

  // A token that came so long after the arrival.
  void Token(const RequestTrace& trace, size_t choice, int64_t after_ms, bool cpu_tier = false,
             int64_t num_cached_tokens = 0) const {
    RequestOutput output;
    output.num_cached_tokens = num_cached_tokens;
    output.first_scheduled = arrival_ + milliseconds(100);
    output.tokens.resize(1);
    output.cpu_tier = cpu_tier;
    trace.OnOutput(choice, output, arrival_ + milliseconds(after_ms));
  }

  std::vector<const Span*> Named(const std::string& name) const {
    std::vector<const Span*> found;
    for (const Span& span : spans_) {
      if (span.name == name) found.push_back(&span);
    }
    return found;
  }
  const Span& Only(const std::string& name) const {
    const auto found = Named(name);
    EXPECT_EQ(found.size(), 1U) << name;
    return *found.at(0);
  }

  TestTime arrival_;
  HttpRequest http_;
  GenerationRequest request_;
  std::vector<Span> spans_;
};

int64_t DurationMs(const Span& span) {
  return (span.end_ns - span.start_ns) / 1'000'000;
}

TEST_F(RequestTraceTest, PhasesFollowEachOtherBelowTheServersSpan) {
  const RequestTrace trace = Make();
  trace.Accept(request_, Identity());
  Token(trace, 0, 300);
  Token(trace, 0, 500);
  Token(trace, 0, 1000);
  trace.EndSequence(0, "stop", 3);
  trace.Finish();
  ASSERT_EQ(spans_.size(), 4U);
  const Span& server = Only("chat model");
  const Span& queue = Only("queue");
  const Span& prefill = Only("prefill");
  const Span& decode = Only("decode");
  EXPECT_EQ(server.kind, Span::Kind::kServer);
  EXPECT_EQ(server.parent_id, *kStart.parent_id);
  EXPECT_TRUE(server.parent_is_remote);
  for (const Span& span : spans_) {
    EXPECT_EQ(span.trace_id, kStart.trace_id);
    EXPECT_EQ(span.trace_state, "a=1");
    EXPECT_NE(span.span_id, SpanId{});
    EXPECT_FALSE(span.failed);
  }
  for (const Span* child : {&queue, &prefill, &decode}) {
    EXPECT_EQ(child->parent_id, server.span_id);
    EXPECT_FALSE(child->parent_is_remote);
    EXPECT_EQ(child->kind, Span::Kind::kInternal);
    EXPECT_THAT(child->attributes, Not(Contains(Key("tandem.choice.index"))));
  }
  EXPECT_EQ(queue.start_ns, server.start_ns);
  EXPECT_EQ(prefill.start_ns, queue.end_ns);
  EXPECT_EQ(decode.start_ns, prefill.end_ns);
  EXPECT_LE(decode.end_ns, server.end_ns);
  EXPECT_EQ(DurationMs(queue), 100);
  EXPECT_EQ(DurationMs(prefill), 200);
  EXPECT_EQ(DurationMs(decode), 700);
  EXPECT_GE(DurationMs(server), 10'000);
  const auto now_ns = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  EXPECT_NEAR(static_cast<double>(server.end_ns), static_cast<double>(now_ns), 5e9) << "since 1970";
}

TEST_F(RequestTraceTest, EmbeddingsEndWithTheirPrefill) {
  const RequestTrace trace = Make();
  trace.Accept(EmbeddingRequest{.inputs = {{1, 2, 3}, {4}}, .dimensions = 8}, "model");
  for (size_t input = 0; input < 2; ++input) {
    RequestOutput output;
    output.first_scheduled = arrival_ + milliseconds(100);
    output.embedding = {1, 2};
    trace.OnOutput(input, output, arrival_ + milliseconds(300));
    trace.EndSequence(input, "stop", 0);
  }
  trace.Finish();
  ASSERT_EQ(spans_.size(), 5U);
  EXPECT_TRUE(Named("decode").empty());
  ASSERT_EQ(Named("prefill").size(), 2U);
  for (const Span* prefill : Named("prefill")) EXPECT_EQ(DurationMs(*prefill), 200);
  const Attributes& attributes = Only("embeddings model").attributes;
  EXPECT_THAT(attributes, Contains(Pair("gen_ai.operation.name", AttributeValue("embeddings"))));
  EXPECT_THAT(attributes, Contains(Pair("gen_ai.embeddings.dimension.count", AttributeValue(int64_t{8}))));
  EXPECT_THAT(attributes, Contains(Pair("gen_ai.usage.input_tokens", AttributeValue(int64_t{4}))));
}

TEST_F(RequestTraceTest, TheServersSpanSaysWhatWasAskedAndAnswered) {
  request_.stream = true;
  request_.sampling.seed = 5;
  request_.sampling.temperature = 0.5F;
  const RequestTrace trace = Make();
  trace.Accept(request_, Identity());
  Token(trace, 0, 300, false, 2);
  trace.EndSequence(0, "length", 1);
  trace.SetCachedTokens(2);
  trace.Finish();
  EXPECT_THAT(Only("prefill").attributes,
              Contains(Pair("gen_ai.usage.cache_read.input_tokens", AttributeValue(int64_t{2}))));
  const Attributes& attributes = Only("chat model").attributes;
  for (const auto& [name, value] :
       Attributes{{"http.request.method", "POST"},
                  {"url.path", "/v1/chat/completions"},
                  {"http.response.status_code", int64_t{200}},
                  {"tandem.request.id", "req-1"},
                  {"user_agent.original", "test"},
                  {"gen_ai.operation.name", "chat"},
                  {"gen_ai.provider.name", "tandem"},
                  {"gen_ai.request.model", "model"},
                  {"gen_ai.response.id", "chatcmpl-1"},
                  {"gen_ai.request.max_tokens", int64_t{7}},
                  {"gen_ai.request.temperature", 0.5},
                  {"gen_ai.request.seed", int64_t{5}},
                  {"gen_ai.request.stream", true},
                  {"gen_ai.response.time_to_first_chunk", 0.3},
                  {"gen_ai.response.finish_reasons", std::vector<std::string>{"length"}},
                  {"gen_ai.usage.input_tokens", int64_t{3}},
                  {"gen_ai.usage.cache_read.input_tokens", int64_t{2}},
                  {"gen_ai.usage.output_tokens", int64_t{1}}}) {
    EXPECT_THAT(attributes, Contains(Pair(name, value))) << name;
  }
  for (const char* absent : {"error.type", "gen_ai.request.choice.count", "tandem.request.prompts"}) {
    EXPECT_THAT(attributes, Not(Contains(Key(absent))));
  }
}

TEST_F(RequestTraceTest, TiersAreThoseThatTokensCameFrom) {
  const RequestTrace trace = Make();
  trace.Accept(request_, Identity());
  Token(trace, 0, 200, false);
  Token(trace, 0, 300, true);
  Token(trace, 0, 400, true);
  Token(trace, 0, 500, false);
  trace.EndSequence(0, "stop", 4);
  trace.Finish();
  EXPECT_THAT(Only("prefill").attributes, Contains(Pair("tandem.kv.tier", AttributeValue("gpu"))));
  const AttributeValue both = std::vector<std::string>{"gpu", "cpu"};
  for (const char* name : {"decode", "chat model"}) {
    EXPECT_THAT(Only(name).attributes, Contains(Pair("tandem.kv.tiers", both)));
    EXPECT_THAT(Only(name).attributes,
                Contains(Pair("tandem.kv.cpu_tier_tokens", AttributeValue(int64_t{2}))));
  }
  const Span& decode = Only("decode");
  ASSERT_EQ(decode.events.size(), 2U);
  EXPECT_THAT(decode.events[0].attributes, ElementsAre(Pair("tandem.kv.tier", AttributeValue("cpu"))));
  EXPECT_THAT(decode.events[1].attributes, ElementsAre(Pair("tandem.kv.tier", AttributeValue("gpu"))));
  EXPECT_EQ(decode.events[0].time_ns - decode.start_ns, 100'000'000);
  EXPECT_EQ(decode.events[1].time_ns, decode.end_ns);
}

TEST_F(RequestTraceTest, EachSequenceHasItsPhases) {
  request_.n = 2;
  request_.prompts.push_back({.tokens = {4}, .text = {}, .max_tokens = 9});
  const RequestTrace trace = Make();
  trace.Accept(request_, Identity());
  for (size_t i = 0; i < 4; ++i) {
    Token(trace, i, 200 + static_cast<int64_t>(i));
    trace.EndSequence(i, i == 0 ? "length" : "stop", 1);
  }
  trace.Finish();
  EXPECT_EQ(spans_.size(), 1 + 3 * 4U);
  const auto decodes = Named("decode");
  ASSERT_EQ(decodes.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_THAT(decodes[i]->attributes,
                Contains(Pair("tandem.choice.index", AttributeValue(static_cast<int64_t>(i)))));
  }
  const AttributeValue one = int64_t{1};
  EXPECT_THAT(Named("prefill")[3]->attributes, Contains(Pair("gen_ai.usage.input_tokens", one)));
  const AttributeValue reasons = std::vector<std::string>{"length", "stop", "stop", "stop"};
  const Attributes& attributes = Only("chat model").attributes;
  EXPECT_THAT(attributes, Contains(Pair("gen_ai.response.finish_reasons", reasons)));
  EXPECT_THAT(attributes, Contains(Pair("gen_ai.usage.output_tokens", AttributeValue(int64_t{4}))));
  EXPECT_THAT(attributes, Contains(Pair("gen_ai.usage.input_tokens", AttributeValue(int64_t{4}))));
  EXPECT_THAT(attributes, Contains(Pair("gen_ai.request.choice.count", AttributeValue(int64_t{2}))));
  EXPECT_THAT(attributes, Contains(Pair("tandem.request.prompts", AttributeValue(int64_t{2}))));
}

TEST_F(RequestTraceTest, ManySequencesHaveNoEndOfSpans) {
  request_.n = 100;
  const RequestTrace trace = Make();
  trace.Accept(request_, Identity());
  for (size_t i = 0; i < 100; ++i) Token(trace, i, 200);
  trace.Finish();
  EXPECT_EQ(spans_.size(), 1 + 3 * 64U);
}

TEST_F(RequestTraceTest, AnErrorOfTheClientIsNoFailure) {
  const RequestTrace trace = Make();
  trace.Fail({.status = 400, .message = "no", .param = {}, .code = "invalid_value"});
  ASSERT_EQ(spans_.size(), 1U);
  const Span& server = Only("POST /v1/chat/completions");
  EXPECT_FALSE(server.failed);
  EXPECT_THAT(server.attributes, Contains(Pair("http.response.status_code", AttributeValue(int64_t{400}))));
  EXPECT_THAT(server.attributes, Contains(Pair("error.type", AttributeValue("invalid_value"))));
}

TEST_F(RequestTraceTest, AnErrorOfTheServerIsOneAndAStreamHadBegun) {
  request_.stream = true;
  const RequestTrace trace = Make();
  trace.Accept(request_, Identity());
  Token(trace, 0, 200);
  trace.EndSequence(0, "error", 1);
  trace.Fail({.status = 500, .message = "it broke", .param = {}, .code = {}});
  const Span& server = Only("chat model");
  EXPECT_TRUE(server.failed);
  EXPECT_EQ(server.error, "it broke");
  EXPECT_THAT(server.attributes, Contains(Pair("http.response.status_code", AttributeValue(int64_t{200}))));
  EXPECT_THAT(server.attributes, Contains(Pair("error.type", AttributeValue("500"))));
}

TEST_F(RequestTraceTest, WhoLeavesWhileWaitingHasNoPhases) {
  const RequestTrace trace = Make();
  trace.Accept(request_, Identity());
  trace.EndSequence(0, "abort", 0);
  trace.Abort();
  trace.Finish();  // is not heard any more
  ASSERT_EQ(spans_.size(), 1U);
  EXPECT_THAT(spans_[0].attributes, Contains(Pair("error.type", AttributeValue("client_gone"))));
  EXPECT_THAT(spans_[0].attributes, Not(Contains(Key("http.response.status_code"))));
}

TEST_F(RequestTraceTest, WithoutATraceNothingHappens) {
  const RequestTrace off = RequestTrace::Begin(nullptr, http_);
  const RequestTrace unsampled(std::nullopt, http_, [](const std::vector<Span>&) { FAIL(); });
  for (const RequestTrace& trace : {off, unsampled}) {
    trace.Accept(request_, Identity());
    Token(trace, 5, 200);
    trace.EndSequence(5, "stop", 1);
    trace.Finish();
    trace.Fail({});
    trace.Abort();
  }
  EXPECT_TRUE(spans_.empty());
}

TEST(TraceMetrics, CountDropsByReason) {
  const std::string text = RenderTraceMetrics({.sent = 1, .queue_full = 2, .unreachable = 3, .refused = 4});
  EXPECT_THAT(text, testing::HasSubstr("\ntandem:trace_spans_sent_total 1\n"));
  EXPECT_THAT(text, testing::HasSubstr("\ntandem:trace_spans_dropped_total{reason=\"queue_full\"} 2\n"));
  EXPECT_THAT(text, testing::HasSubstr("\ntandem:trace_spans_dropped_total{reason=\"unreachable\"} 3\n"));
  EXPECT_THAT(text, testing::HasSubstr("\ntandem:trace_spans_dropped_total{reason=\"refused\"} 4\n"));
}

}  // namespace
}  // namespace tandem
