#include "server/messages_writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/model_testing.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;
using Kind = AnswerPart::Kind;

struct NamedEvent {
  std::string name;
  ordered_json data;
};

// Also checks the frame, and that data has the event's name as its type.
std::vector<NamedEvent> EventsOf(std::string_view text) {
  std::vector<NamedEvent> events;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    EXPECT_NE(end, std::string_view::npos);
    const std::string_view frame = text.substr(0, end);
    const size_t line_end = frame.find('\n');
    EXPECT_TRUE(frame.starts_with("event: ")) << frame;
    EXPECT_EQ(frame.substr(line_end + 1, 6), "data: ");
    events.push_back(
        {std::string(frame.substr(7, line_end - 7)), ordered_json::parse(frame.substr(line_end + 7))});
    EXPECT_EQ(events.back().data["type"], events.back().name);
    text.remove_prefix(end + 2);
  }
  return events;
}

class MessagesWriterTest : public testing::Test {
 protected:
  MessagesWriterTest() {
    request_.kind = GenerationRequest::Kind::kChat;
    request_.prompts.push_back({.tokens = {'p', 'q', 'r'}, .text = {}, .max_tokens = 9});
  }

  std::unique_ptr<AnswerWriter> Writer(MessagesWriterOptions options = {}) {
    return MakeMessagesWriter({request_, SharedTestModel().tokenizer(), identity_}, options);
  }

  CompletionStream Stream(FinishReason reason, const std::string& text = "a", int64_t num_cached_tokens = 0) {
    CompletionStream stream(&SharedTestModel().tokenizer(), &request_, 0);
    RequestOutput output;
    for (const int32_t token : SharedTestModel().Encode(text)) output.tokens.push_back({.token = token});
    output.finish_reason = reason;
    output.num_cached_tokens = num_cached_tokens;
    stream.Append(output);
    return stream;
  }

  // Everything behind message_start, each event as text.
  std::vector<std::string> Events(const std::vector<CompletionStream::Delta>& deltas,
                                  const CompletionStream& stream, MessagesWriterOptions options = {}) {
    const auto writer = Writer(options);
    std::string text = writer->BeginStream();
    for (const auto& delta : deltas) text += writer->Delta(0, delta, stream, true);
    text += writer->EndStream({.prompt_tokens = 3, .completion_tokens = 5});
    std::vector<std::string> events;
    for (const NamedEvent& event : EventsOf(text)) {
      std::string line = event.name;
      for (const char* member : {"index", "content_block", "delta"}) {
        if (event.data.contains(member)) line += " " + event.data[member].dump();
      }
      events.push_back(std::move(line));
    }
    EXPECT_EQ(events.at(0), "message_start");
    EXPECT_EQ(events.at(1), "ping");
    events.erase(events.begin(), events.begin() + 2);
    return events;
  }

  ordered_json Body(const Choice& choice, CompletionStream stream, MessagesWriterOptions options = {}) {
    std::vector<CompletionStream> streams;
    streams.push_back(std::move(stream));
    return ordered_json::parse(
        Writer(options)->Body({choice}, streams, {.prompt_tokens = 3, .completion_tokens = 5}));
  }

  GenerationRequest request_;
  ResponseIdentity identity_{GenerationRequest::Kind::kChat, "msg_1", 5, "m"};
};

CompletionStream::Delta PartsDelta(std::vector<AnswerPart> parts, bool finished = false,
                                   std::vector<std::string> call_ids = {}) {
  CompletionStream::Delta delta;
  delta.parts = std::move(parts);
  delta.finished = finished;
  delta.call_ids = std::move(call_ids);
  return delta;
}

TEST_F(MessagesWriterTest, StreamsBeginWithTheMessageOnceItIsKnownWhatWasCached) {
  const auto writer = Writer();
  EXPECT_EQ(writer->BeginStream(), "");
  const auto stream = Stream(FinishReason::kNone, "a", 2);
  const auto events = EventsOf(writer->Delta(0, PartsDelta({}), stream, true));
  EXPECT_EQ(events[0].data["message"], ordered_json::parse(R"({"id":"msg_1","type":"message",
      "role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,
      "usage":{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,
               "output_tokens":0,"service_tier":"standard"}})"));
  EXPECT_EQ(events[1].name, "ping");
  EXPECT_EQ(writer->Delta(0, PartsDelta({}), stream, true), "");
  const auto end =
      EventsOf(writer->EndStream({.prompt_tokens = 3, .completion_tokens = 1, .cached_tokens = 2}));
  EXPECT_EQ(end[0].data["usage"]["input_tokens"], 1);
  EXPECT_EQ(end[0].data["usage"]["cache_read_input_tokens"], 2);
}

TEST_F(MessagesWriterTest, StreamsText) {
  EXPECT_EQ(
      Events({PartsDelta({{Kind::kText, "a\"\n"}}), PartsDelta({}), PartsDelta({{Kind::kText, "b"}}, true)},
             Stream(FinishReason::kStop)),
      (std::vector<std::string>{
          R"(content_block_start 0 {"type":"text","text":""})",
          R"(content_block_delta 0 {"type":"text_delta","text":"a\"\n"})",
          R"(content_block_delta 0 {"type":"text_delta","text":"b"})", "content_block_stop 0",
          R"(message_delta {"stop_reason":"end_turn","stop_sequence":null})", "message_stop"}));
}

TEST_F(MessagesWriterTest, StreamsThinkingTextAndCalls) {
  EXPECT_EQ(Events({PartsDelta({{Kind::kReasoning, "hm"}}),
                    PartsDelta({{Kind::kReasoning, "m"}, {Kind::kText, "t"}, {Kind::kCallBegin, "f"}}, false,
                               {"toolu_1"}),
                    PartsDelta({{Kind::kCallArguments, "{\"a\":"}}),
                    PartsDelta({{Kind::kCallArguments, "1}"},
                                {Kind::kCallEnd, ""},
                                {Kind::kCallBegin, "g"},
                                {Kind::kCallArguments, "{}"},
                                {Kind::kCallEnd, ""},
                                {Kind::kCallBegin, "g"},
                                {Kind::kCallArguments, "{}"},
                                {Kind::kCallEnd, ""}},
                               false, {"call_2", "abcdefghi"}),
                    PartsDelta({}, true)},
                   Stream(FinishReason::kStop)),
            (std::vector<std::string>{
                R"(content_block_start 0 {"type":"thinking","thinking":"","signature":""})",
                R"(content_block_delta 0 {"type":"thinking_delta","thinking":"hm"})",
                R"(content_block_delta 0 {"type":"thinking_delta","thinking":"m"})",
                R"(content_block_delta 0 {"type":"signature_delta","signature":"unsigned"})",
                "content_block_stop 0",
                R"(content_block_start 1 {"type":"text","text":""})",
                R"(content_block_delta 1 {"type":"text_delta","text":"t"})",
                "content_block_stop 1",
                R"(content_block_start 2 {"type":"tool_use","id":"toolu_1","name":"f","input":{}})",
                R"(content_block_delta 2 {"type":"input_json_delta","partial_json":"{\"a\":"})",
                R"(content_block_delta 2 {"type":"input_json_delta","partial_json":"1}"})",
                "content_block_stop 2",
                R"(content_block_start 3 {"type":"tool_use","id":"toolu_2","name":"g","input":{}})",
                R"(content_block_delta 3 {"type":"input_json_delta","partial_json":"{}"})",
                "content_block_stop 3",
                R"(content_block_start 4 {"type":"tool_use","id":"abcdefghi","name":"g","input":{}})",
                R"(content_block_delta 4 {"type":"input_json_delta","partial_json":"{}"})",
                "content_block_stop 4",
                R"(message_delta {"stop_reason":"tool_use","stop_sequence":null})",
                "message_stop"}));
}

TEST_F(MessagesWriterTest, EveryBlockIsClosed) {
  const auto events = Events({PartsDelta({{Kind::kCallBegin, "f"}}, false, {"toolu_1"}),
                              PartsDelta({{Kind::kCallArguments, "{\"a"}}, true)},
                             Stream(FinishReason::kLength));
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[2], "content_block_stop 0");
  EXPECT_EQ(events[3], R"(message_delta {"stop_reason":"max_tokens","stop_sequence":null})");
  EXPECT_EQ(Events({PartsDelta({}, true)}, Stream(FinishReason::kStop)).size(), 2U);
}

TEST_F(MessagesWriterTest, OmittedThinkingHasItsBlock) {
  const auto events = Events({PartsDelta({{Kind::kReasoning, "hm"}}), PartsDelta({{Kind::kText, "t"}}, true)},
                             Stream(FinishReason::kStop), {.omits_thinking = true});
  EXPECT_EQ(events[0], R"(content_block_start 0 {"type":"thinking","thinking":"","signature":""})");
  EXPECT_EQ(events[1], R"(content_block_delta 0 {"type":"signature_delta","signature":"unsigned"})");
  const auto body = Body({.reasoning = "hm"}, Stream(FinishReason::kStop), {.omits_thinking = true});
  EXPECT_EQ(body["content"][0]["thinking"], "");
}

TEST_F(MessagesWriterTest, UsageIsInTheLastEvents) {
  const auto events = EventsOf(Writer()->EndStream({.prompt_tokens = 3, .completion_tokens = 5}));
  EXPECT_EQ(events[0].data["usage"]["output_tokens"], 5);
  EXPECT_EQ(events[0].data["usage"]["input_tokens"], 3);
}

TEST_F(MessagesWriterTest, StopSequencesAreNamed) {
  request_.stop = {"bc"};
  CompletionStream stream = Stream(FinishReason::kNone, "abc");
  ASSERT_TRUE(stream.finished());
  const auto events = Events({PartsDelta({{Kind::kText, "a"}}, true)}, stream);
  EXPECT_EQ(events[3], R"(message_delta {"stop_reason":"stop_sequence","stop_sequence":"bc"})");
  const ordered_json body = Body({.text = "a"}, std::move(stream));
  EXPECT_EQ(body["stop_reason"], "stop_sequence");
  EXPECT_EQ(body["stop_sequence"], "bc");
}

TEST_F(MessagesWriterTest, FailedStreamsEndInAnError) {
  const auto events = EventsOf(Writer()->FailStream(Unavailable("gone", "cancelled")));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].name, "error");
  EXPECT_EQ(events[0].data["error"], ordered_json::parse(R"({"type":"overloaded_error","message":"gone"})"));
}

TEST_F(MessagesWriterTest, WholeAnswers) {
  const ordered_json body =
      Body({.text = "t", .reasoning = "hm", .tool_calls = {{"call_1", "f", "{\"b\": 1, \"a\": [2]}"}}},
           Stream(FinishReason::kStop));
  EXPECT_EQ(body, ordered_json::parse(R"({"id":"msg_1","type":"message","role":"assistant","model":"m",
      "content":[{"type":"thinking","thinking":"hm","signature":"unsigned"},{"type":"text","text":"t"},
                 {"type":"tool_use","id":"toolu_1","name":"f","input":{"b":1,"a":[2]}}],
      "stop_reason":"tool_use","stop_sequence":null,
      "usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,
               "output_tokens":5,"service_tier":"standard"}})"));
  EXPECT_EQ(Body({}, Stream(FinishReason::kLength))["content"], ordered_json::array());
  EXPECT_EQ(Body({}, Stream(FinishReason::kLength))["stop_reason"], "max_tokens");
}

TEST_F(MessagesWriterTest, CallsThatCannotBeMadeAreText) {
  for (const char* arguments : {"{\"a\": ", "[1]", ""}) {
    const ordered_json body =
        Body({.tool_calls = {{"toolu_1", "f", arguments}}}, Stream(FinishReason::kStop));
    EXPECT_EQ(body["content"],
              ordered_json::array(
                  {{{"type", "text"},
                    {"text", std::string("<tool_call>\n{\"name\": \"f\", \"arguments\": ") + arguments}}}));
    EXPECT_EQ(body["stop_reason"], "end_turn");
  }
}

}  // namespace
}  // namespace tandem
