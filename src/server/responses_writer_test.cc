#include "server/responses_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "server/model_testing.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;
using Kind = AnswerPart::Kind;
using testing::ElementsAre;

// The events' objects; each name is that of its line.
std::vector<ordered_json> Events(const std::string& text) {
  std::vector<ordered_json> events;
  std::istringstream lines(text);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (!line.starts_with("data: ")) continue;
    events.push_back(ordered_json::parse(line.substr(6)));
    EXPECT_EQ(events.back()["type"], name);
  }
  return events;
}

// Without what all begin with.
std::vector<std::string> Types(const std::vector<ordered_json>& events) {
  std::vector<std::string> types;
  types.reserve(events.size());
  for (const ordered_json& event : events) types.push_back(event["type"].get<std::string>().substr(9));
  return types;
}

constexpr Usage kUsage{.prompt_tokens = 3, .completion_tokens = 4, .cached_tokens = 2};

class ResponsesWriterTest : public testing::Test {
 protected:
  ResponsesWriterTest() {
    request_.kind = GenerationRequest::Kind::kChat;
    request_.prompts.push_back({.tokens = {'p'}, .text = {}, .max_tokens = 9});
    context_->id = "resp_r_1";
    context_->model = "m";
    context_->created = 5;
    context_->echo = {{"tools", ordered_json::array()}, {"instructions", nullptr}};
    context_->keep = [this](const ordered_json& response) { kept_ = response; };
  }

  CompletionStream StreamThatEnds(FinishReason reason) {
    CompletionStream stream(&SharedTestModel().tokenizer(), &request_, 0);
    RequestOutput output;
    output.tokens.push_back({.token = 'a'});
    output.finish_reason = reason;
    stream.Append(output);
    return stream;
  }

  std::unique_ptr<ResponsesWriter> MakeWriter() {
    return std::make_unique<ResponsesWriter>(
        AnswerWriterContext{request_, SharedTestModel().tokenizer(), identity_}, context_);
  }

  // One delta for each part.
  std::vector<ordered_json> Streamed(const std::vector<AnswerPart>& parts, FinishReason reason) {
    const auto writer = MakeWriter();
    const CompletionStream stream = StreamThatEnds(reason);
    std::string text = writer->BeginStream();
    for (size_t i = 0; i < parts.size(); ++i) {
      CompletionStream::Delta delta{.parts = {parts[i]}, .finished = i + 1 == parts.size()};
      if (parts[i].kind == Kind::kCallBegin) delta.call_ids = {"call_" + std::to_string(i)};
      text += writer->Delta(0, delta, stream, true);
    }
    text += writer->EndStream(kUsage);
    return Events(text);
  }

  ordered_json Whole(Choice choice, FinishReason reason) {
    std::vector<CompletionStream> streams;
    streams.push_back(StreamThatEnds(reason));
    return ordered_json::parse(MakeWriter()->Body({std::move(choice)}, streams, kUsage));
  }

  GenerationRequest request_;
  ResponseIdentity identity_{.kind = GenerationRequest::Kind::kChat, .id = "id", .created = 5, .model = "m"};
  std::shared_ptr<ResponsesContext> context_ = std::make_shared<ResponsesContext>();
  ordered_json kept_;
};

TEST_F(ResponsesWriterTest, AStreamOfTextHasItsEvents) {
  const auto events = Streamed({{Kind::kText, "he"}, {Kind::kText, "y\""}}, FinishReason::kStop);
  EXPECT_THAT(Types(events), ElementsAre("created", "in_progress", "output_item.added", "content_part.added",
                                         "output_text.delta", "output_text.delta", "output_text.done",
                                         "content_part.done", "output_item.done", "completed"));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_TRUE(events[0]["response"].contains("instructions"));
  EXPECT_EQ(events[2]["item"].dump(),
            R"({"id":"msg_r_1_0","type":"message","status":"in_progress","role":"assistant","content":[]})");
  EXPECT_EQ(
      events[5].dump(),
      R"({"type":"response.output_text.delta","sequence_number":5,"item_id":"msg_r_1_0","output_index":0,)"
      R"("content_index":0,"delta":"y\"","logprobs":[]})");
  EXPECT_EQ(events[6]["text"], "hey\"");
  const ordered_json& item = events[8]["item"];
  EXPECT_EQ(item["status"], "completed");
  EXPECT_EQ(item["content"].dump(),
            R"([{"type":"output_text","text":"hey\"","annotations":[],"logprobs":[]}])");
  const ordered_json& response = events[9]["response"];
  EXPECT_EQ(response["output"], ordered_json::array({item}));
  EXPECT_EQ(response["usage"].dump(),
            R"({"input_tokens":3,"input_tokens_details":{"cached_tokens":2,"cache_write_tokens":0},)"
            R"("output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":7})");
  EXPECT_EQ(kept_, response);
}

TEST_F(ResponsesWriterTest, ReasonsAndCallsAreItems) {
  context_->tools.by_function["n__g"] = {.name = "g", .name_space = "n", .param = {}};
  const auto events = Streamed({{Kind::kReasoning, "why"},
                                {Kind::kText, "so"},
                                {Kind::kCallBegin, "f"},
                                {Kind::kCallArguments, R"({"a")"},
                                {Kind::kCallArguments, ":1}"},
                                {Kind::kCallEnd, ""},
                                {Kind::kCallBegin, "n__g"},
                                {Kind::kCallArguments, "{}"},
                                {Kind::kCallEnd, ""}},
                               FinishReason::kStop);
  EXPECT_THAT(
      Types(events),
      ElementsAre("created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta",
                  "reasoning_text.done", "content_part.done", "output_item.done", "output_item.added",
                  "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
                  "output_item.done", "output_item.added", "function_call_arguments.delta",
                  "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
                  "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                  "output_item.done", "completed"));
  EXPECT_EQ(events[17]["arguments"], R"({"a":1})");
  EXPECT_EQ(events[18]["output_index"], 2);
  EXPECT_EQ(events[18]["item"].dump(),
            R"({"id":"fc_r_1_2","type":"function_call","status":"completed","call_id":"call_2","name":"f",)"
            R"("arguments":"{\"a\":1}"})");
  EXPECT_EQ(events[22]["item"]["name"], "g");
  EXPECT_EQ(events[22]["item"]["namespace"], "n");
  const ordered_json& response = events.back()["response"];
  ASSERT_EQ(response["output"].size(), 4U);
  EXPECT_EQ(response["output"][0].dump(),
            R"({"id":"rs_r_1_0","type":"reasoning","summary":[],)"
            R"("content":[{"type":"reasoning_text","text":"why"}],"encrypted_content":null})");
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 3);
}

TEST_F(ResponsesWriterTest, ReasonsAreASummaryWhereThatWasAskedFor) {
  context_->shows_summary = true;
  const auto events = Streamed({{Kind::kReasoning, "why"}, {Kind::kText, "so"}}, FinishReason::kStop);
  const auto types = Types(events);
  EXPECT_THAT(std::vector<std::string>(types.begin() + 2, types.begin() + 8),
              ElementsAre("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
                          "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"));
  EXPECT_EQ(events[7]["item"]["summary"].dump(), R"([{"type":"summary_text","text":"why"}])");
  EXPECT_TRUE(events[7]["item"]["content"].empty());
}

TEST_F(ResponsesWriterTest, InputsOfCustomToolsComeWhole) {
  context_->tools.by_function["sh"] = {.name = "sh", .name_space = {}, .is_custom = true, .param = {}};
  const auto events = Streamed({{Kind::kCallBegin, "sh"},
                                {Kind::kCallArguments, R"({"input":)"},
                                {Kind::kCallArguments, R"("ls"})"},
                                {Kind::kCallEnd, ""}},
                               FinishReason::kStop);
  EXPECT_THAT(Types(events),
              ElementsAre("created", "in_progress", "output_item.added", "custom_tool_call_input.delta",
                          "custom_tool_call_input.done", "output_item.done", "completed"));
  EXPECT_EQ(events[5]["item"]["type"], "custom_tool_call");
  EXPECT_EQ(events[5]["item"]["input"], "ls");
}

TEST_F(ResponsesWriterTest, WhatWasCutIsIncomplete) {
  const auto text = Streamed({{Kind::kText, "x"}}, FinishReason::kLength);
  EXPECT_EQ(text.back()["type"], "response.incomplete");
  EXPECT_EQ(text.back()["response"]["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(text.back()["response"]["output"][0]["status"], "incomplete");
  const auto call = Streamed({{Kind::kCallBegin, "f"}, {Kind::kCallArguments, "{\"a"}, {Kind::kCallEnd, ""}},
                             FinishReason::kLength);
  EXPECT_EQ(call.back()["response"]["output"][0]["status"], "incomplete");
  EXPECT_EQ(call.back()["response"]["output"][0]["arguments"], "{\"a");
}

TEST_F(ResponsesWriterTest, AnswersWithoutAWordHaveAnEmptyMessage) {
  const auto events = Streamed({}, FinishReason::kStop);
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["text"], "");
}

TEST_F(ResponsesWriterTest, AStreamThatFailsSaysWhy) {
  const auto writer = MakeWriter();
  const CompletionStream stream = StreamThatEnds(FinishReason::kStop);
  std::string text = writer->BeginStream();
  text += writer->Delta(0, {.parts = {{Kind::kText, "x"}}}, stream, true);
  text += writer->FailStream(Unavailable("too late", "cancelled"));
  const auto events = Events(text);
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"].dump(), R"({"code":"server_error","message":"too late"})");
  EXPECT_EQ(events.back()["response"]["output"][0]["status"], "incomplete");
  EXPECT_TRUE(kept_.is_null());
}

TEST_F(ResponsesWriterTest, TheWholeAnswerIsThatOfTheStream) {
  const Choice choice{.text = "so",
                      .reasoning = "why",
                      .tool_calls = {{.id = "call_2", .name = "f", .arguments = "{}"}},
                      .token_ids = {},
                      .records = {}};
  const ordered_json body = Whole(choice, FinishReason::kStop);
  EXPECT_EQ(body, kept_);
  ordered_json streamed = Streamed({{Kind::kReasoning, "why"},
                                    {Kind::kText, "so"},
                                    {Kind::kCallBegin, "f"},
                                    {Kind::kCallArguments, "{}"},
                                    {Kind::kCallEnd, ""}},
                                   FinishReason::kStop)
                              .back()["response"];
  streamed["completed_at"] = body["completed_at"];
  EXPECT_EQ(body.dump(), streamed.dump());
}

TEST_F(ResponsesWriterTest, LogprobsAreWithTheText) {
  request_.num_logprobs = 1;
  Choice choice{.text = "a"};
  choice.records.push_back(
      {.token = 'a', .logprob = -0.5F, .top_logprobs = {{'a', -0.5F}}, .text_offset = 0});
  const ordered_json body = Whole(choice, FinishReason::kStop);
  const ordered_json& logprobs = body["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(logprobs.size(), 1U);
  EXPECT_EQ(logprobs[0]["token"], "a");
  EXPECT_EQ(logprobs[0]["top_logprobs"][0]["logprob"], -0.5);
}

}  // namespace
}  // namespace tandem
