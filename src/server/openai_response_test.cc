#include "server/openai_response.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/model_testing.h"
#include "server/sse.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

TokenRecord Record(int32_t token, float logprob, int64_t offset) {
  return {.token = token,
          .logprob = logprob,
          .top_logprobs = {{'b', -0.1F}, {token, logprob}},
          .text_offset = offset};
}

GenerationRequest Request(GenerationRequest::Kind kind) {
  GenerationRequest request;
  request.kind = kind;
  request.prompts.push_back({.tokens = {'p'}, .text = {}, .max_tokens = 9});
  return request;
}

CompletionStream Finished(const GenerationRequest& request) {
  CompletionStream stream(&SharedTestModel().tokenizer(), &request, 0);
  RequestOutput output;
  output.tokens.push_back({.token = 'a'});
  output.finish_reason = FinishReason::kLength;
  output.num_cached_tokens = 1;
  stream.Append(output);
  return stream;
}

TEST(OpenAiResponse, CompletionLogprobsHaveTheTokensOwnBesideTheBest) {
  TokenRecord first{.token = 'x', .logprob = std::nullopt, .top_logprobs = {}, .text_offset = 0};
  const ordered_json logprobs =
      CompletionLogprobs({&SharedTestModel().tokenizer()}, {first, Record('a', -2.5F, 1)}, 1);
  EXPECT_EQ(logprobs["tokens"], ordered_json({"x", "a"}));
  EXPECT_EQ(logprobs["token_logprobs"], ordered_json({nullptr, -2.5}));
  EXPECT_EQ(logprobs["text_offset"], ordered_json({0, 1}));
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 2U);
  EXPECT_EQ(logprobs["top_logprobs"][1]["a"], -2.5);
}

TEST(OpenAiResponse, ChatLogprobsHaveBytes) {
  const ordered_json logprobs = ChatLogprobs({&SharedTestModel().tokenizer()}, {Record(0xff, -3.0F, 0)}, 2);
  const ordered_json& entry = logprobs["content"][0];
  EXPECT_EQ(entry["token"], "bytes:\\xff");
  EXPECT_EQ(entry["bytes"], ordered_json::array({255}));
  EXPECT_EQ(entry["top_logprobs"].size(), 2U);
  EXPECT_EQ(entry["top_logprobs"][0]["token"], "b");
}

TEST(OpenAiResponse, LogprobsAreFinite) {
  const ordered_json logprobs =
      ChatLogprobs({&SharedTestModel().tokenizer()}, {Record('a', -INFINITY, 0)}, 0);
  EXPECT_EQ(logprobs["content"][0]["logprob"], -9999.0);
}

TEST(OpenAiResponse, PlainBodies) {
  const ResponseIdentity identity{GenerationRequest::Kind::kCompletion, "cmpl-1", 5, "m"};
  const GenerationRequest request = Request(GenerationRequest::Kind::kCompletion);
  std::vector<CompletionStream> streams;
  streams.push_back(Finished(request));
  const auto body = ordered_json::parse(
      ResponseBody(identity, SharedTestModel().tokenizer(), request, {{"text\xff", {}}}, streams, {3, 4}));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "text\xef\xbf\xbd");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["total_tokens"], 7);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);

  const ResponseIdentity chat_identity{GenerationRequest::Kind::kChat, "chatcmpl-1", 5, "m"};
  const GenerationRequest chat = Request(GenerationRequest::Kind::kChat);
  std::vector<CompletionStream> chat_streams;
  chat_streams.push_back(Finished(chat));
  const auto chat_body = ordered_json::parse(
      ResponseBody(chat_identity, SharedTestModel().tokenizer(), chat, {{"t", {}}}, chat_streams, {3, 4}));
  EXPECT_EQ(chat_body["object"], "chat.completion");
  EXPECT_EQ(chat_body["choices"][0]["message"]["role"], "assistant");
}

TEST(OpenAiResponse, APromptsTokensCountOnceAndAsCachedWhatAllOfItsStreamsFound) {
  GenerationRequest request = Request(GenerationRequest::Kind::kCompletion);
  request.n = 2;
  request.prompts.push_back({.tokens = {1, 2, 3, 4, 5}, .text = {}, .max_tokens = 1});
  std::vector<CompletionStream> streams;
  const auto add = [&](size_t prompt_index, int64_t num_cached_tokens) {
    RequestOutput output;
    output.tokens.push_back({.token = 7});
    output.num_cached_tokens = num_cached_tokens;
    streams.emplace_back(&SharedTestModel().tokenizer(), &request, prompt_index).Append(output);
  };
  add(0, 0);
  add(0, 1);
  add(1, 4);
  add(1, 2);
  const Usage usage = CountUsage(streams, request.n);
  EXPECT_EQ(usage.prompt_tokens, std::ssize(request.prompts[0].tokens) + 5);
  EXPECT_EQ(usage.cached_tokens, 2);
  EXPECT_EQ(usage.completion_tokens, 4);
}

TEST(OpenAiResponse, ChunksAreJson) {
  for (const auto kind : {GenerationRequest::Kind::kCompletion, GenerationRequest::Kind::kChat}) {
    GenerationRequest request = Request(kind);
    request.include_usage = true;
    const ResponseIdentity identity{kind, "id\\1", 5, "mo\"del"};
    ResponseIdentity plain = identity;
    plain.id = "id1";
    const ChunkWriter writer(plain, &SharedTestModel().tokenizer(), &request);
    const CompletionStream stream = Finished(request);
    CompletionStream::Delta delta{
        .text = "a\"\n", .parts = {{AnswerPart::Kind::kText, "a\"\n"}}, .records = {}, .finished = false};
    const auto chunk = ordered_json::parse(writer.Delta(2, delta, stream));
    EXPECT_EQ(chunk["model"], "mo\"del");
    EXPECT_EQ(chunk["choices"][0]["index"], 2);
    EXPECT_TRUE(chunk["choices"][0]["finish_reason"].is_null());
    EXPECT_TRUE(chunk["usage"].is_null());
    const bool is_chat = kind == GenerationRequest::Kind::kChat;
    EXPECT_EQ(is_chat ? chunk["choices"][0]["delta"]["content"] : chunk["choices"][0]["text"], "a\"\n");
    delta.finished = true;
    EXPECT_EQ(ordered_json::parse(writer.Delta(0, delta, stream))["choices"][0]["finish_reason"], "length");
    const auto usage = ordered_json::parse(
        writer.FinalUsage({.prompt_tokens = 1, .completion_tokens = 2, .cached_tokens = 1}));
    EXPECT_TRUE(usage["choices"].empty());
    EXPECT_EQ(usage["usage"]["total_tokens"], 3);
    EXPECT_EQ(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
    EXPECT_EQ(ordered_json::parse(writer.Role(1, stream))["choices"][0]["delta"]["role"], "assistant");
  }
}

TEST(OpenAiResponse, EveryChunkHasItsUsageIfItWasAskedFor) {
  for (const auto kind : {GenerationRequest::Kind::kCompletion, GenerationRequest::Kind::kChat}) {
    GenerationRequest request = Request(kind);
    request.include_usage = request.continuous_usage = true;
    const ChunkWriter writer({kind, "id", 5, "m"}, &SharedTestModel().tokenizer(), &request);
    const CompletionStream stream = Finished(request);
    const auto chunk = ordered_json::parse(writer.Delta(0, {.text = "", .records = {}}, stream));
    EXPECT_EQ(chunk["usage"]["completion_tokens"], stream.num_output_tokens());
    EXPECT_EQ(chunk["usage"]["prompt_tokens"], request.prompts[0].tokens.size());
    EXPECT_EQ(chunk["usage"]["prompt_tokens_details"]["cached_tokens"], stream.num_cached_tokens());
    EXPECT_GT(stream.num_cached_tokens(), 0);
    EXPECT_GT(stream.num_output_tokens(), 0);
    EXPECT_TRUE(ordered_json::parse(writer.Role(0, stream))["usage"].is_null());
  }
}

TEST(OpenAiResponse, ReturnsTokenIdsIfTheyWereAskedFor) {
  for (const auto kind : {GenerationRequest::Kind::kCompletion, GenerationRequest::Kind::kChat}) {
    const bool is_chat = kind == GenerationRequest::Kind::kChat;
    GenerationRequest request = Request(kind);
    request.return_token_ids = true;
    const ChunkWriter writer({kind, "id", 5, "m"}, &SharedTestModel().tokenizer(), &request);
    std::vector<CompletionStream> streams;
    streams.push_back(Finished(request));
    const ordered_json prompt = request.prompts[0].tokens;
    const CompletionStream::Delta delta{.text = "ab", .token_ids = {97, 98}, .is_first = true};
    const auto chunk = ordered_json::parse(writer.Delta(0, delta, streams[0]));
    EXPECT_EQ(chunk["choices"][0]["token_ids"].dump(), "[97,98]");
    EXPECT_EQ(chunk["choices"][0].contains("prompt_token_ids"), !is_chat);
    const auto next = ordered_json::parse(writer.Delta(0, {.text = "b", .token_ids = {98}}, streams[0]));
    EXPECT_FALSE(next["choices"][0].contains("prompt_token_ids")) << "it was in the first";
    EXPECT_EQ(ordered_json::parse(writer.Role(0, streams[0]))["prompt_token_ids"], prompt);
    const auto body =
        ordered_json::parse(ResponseBody({kind, "id", 5, "m"}, SharedTestModel().tokenizer(), request,
                                         {{.text = "ab", .token_ids = {97, 98}}}, streams, {1, 2}));
    EXPECT_EQ(body["choices"][0]["token_ids"].dump(), "[97,98]");
    EXPECT_EQ((is_chat ? body : body["choices"][0])["prompt_token_ids"], prompt);
  }
}

TEST(OpenAiResponse, NamesTheServiceTierIfItWasAskedFor) {
  for (const auto kind : {GenerationRequest::Kind::kCompletion, GenerationRequest::Kind::kChat}) {
    const ResponseIdentity identity{kind, "id1", 5, "m"};
    // The body, and all kinds of chunks.
    const auto answers = [&](const GenerationRequest& request) {
      std::vector<CompletionStream> streams;
      streams.push_back(Finished(request));
      const ChunkWriter writer(identity, &SharedTestModel().tokenizer(), &request);
      const CompletionStream::Delta delta{.text = "a", .records = {}, .finished = false};
      return std::vector<ordered_json>{
          ordered_json::parse(
              ResponseBody(identity, SharedTestModel().tokenizer(), request, {{"t", {}}}, streams, {3, 4})),
          ordered_json::parse(writer.Delta(0, delta, streams[0])),
          ordered_json::parse(writer.Role(0, streams[0])), ordered_json::parse(writer.FinalUsage({3, 4}))};
    };
    GenerationRequest request = Request(kind);
    for (const ordered_json& answer : answers(request)) EXPECT_FALSE(answer.contains("service_tier"));
    request.names_service_tier = true;
    for (const ordered_json& answer : answers(request)) EXPECT_EQ(answer["service_tier"], "default");
    request.flexible = true;
    for (const ordered_json& answer : answers(request)) EXPECT_EQ(answer["service_tier"], "flex");
  }
}

TEST(OpenAiResponse, IdsDifferUnlessTheRequestNamesItself) {
  GenerationRequest chat{.kind = GenerationRequest::Kind::kChat};
  EXPECT_NE(ResponseId(chat), ResponseId(chat));
  EXPECT_TRUE(ResponseId(GenerationRequest{}).starts_with("cmpl-"));
  chat.request_id = "mine";
  EXPECT_EQ(ResponseId(chat), "chatcmpl-mine");
}

TEST(OpenAiResponse, PromptLogprobsAreByTokenId) {
  SampledToken sampled{.token = 'b', .logprob = -2.0F, .rank = 7};
  sampled.top_logprobs = {{'a', -0.5F}, {'c', -1.0F}};
  const ordered_json places = PromptLogprobs({&SharedTestModel().tokenizer()}, {sampled}, 1);
  EXPECT_EQ(places.dump(), R"([null,{"98":{"logprob":-2.0,"rank":7,"decoded_token":"b"},)"
                           R"("97":{"logprob":-0.5,"rank":1,"decoded_token":"a"}}])");
}

TEST(OpenAiResponse, LogprobsNameTokensByIdWhereAsked) {
  const TokenNames names{&SharedTestModel().tokenizer(), true};
  const ordered_json completion = CompletionLogprobs(names, {Record('a', -2.5F, 1)}, 1);
  EXPECT_EQ(completion["tokens"][0], "token_id:97");
  const ordered_json chat = ChatLogprobs(names, {Record('a', -2.5F, 1)}, 1);
  EXPECT_EQ(chat["content"][0]["token"], "token_id:97");
  EXPECT_EQ(chat["content"][0]["bytes"], ordered_json::array({97}));
}

TEST(Sse, FramesOneEvent) {
  EXPECT_EQ(SseEvent("{}"), "data: {}\n\n");
}

TEST(ApiError, BodyHasAllFourFields) {
  const auto body = ordered_json::parse(ErrorBody(InvalidRequest("n", "bad \xff")));
  EXPECT_EQ(body["error"]["param"], "n");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["error"]["code"], "invalid_value");
  EXPECT_EQ(body["error"]["message"], "bad \xef\xbf\xbd");
  EXPECT_TRUE(ordered_json::parse(ErrorBody({.status = 500, .message = "x"}))["error"]["param"].is_null());
  EXPECT_EQ(ErrorResponse(Unavailable("x", "queue_full")).headers.at(0).name, "Retry-After");
}

// A chat's stream of one letter a token, as clients put it together.
TEST(OpenAiResponse, ChunksOfCallsAddUpToTheMessage) {
  GenerationRequest request = Request(GenerationRequest::Kind::kChat);
  request.parser = {.format = ToolFormat::kHermes, .reasoning = true, .tools = {"f", "g"}};
  CompletionStream stream(&SharedTestModel().tokenizer(), &request, 0);
  const ResponseIdentity identity{.kind = request.kind, .id = "i", .created = 1, .model = "m"};
  const ChunkWriter writer(identity, &SharedTestModel().tokenizer(), &request);
  Choice whole;
  ordered_json calls = ordered_json::array();
  std::string content;
  std::string reasoning;
  std::string reason;
  const auto take = [&](const RequestOutput& output) {
    CompletionStream::Delta delta = stream.Append(output);
    const ordered_json choice = ordered_json::parse(writer.Delta(0, delta, stream))["choices"][0];
    whole.Append(std::move(delta));
    content += choice["delta"].value("content", "");
    reasoning += choice["delta"].value("reasoning_content", "");
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    for (const ordered_json& call : choice["delta"].value("tool_calls", ordered_json::array())) {
      const auto index = call["index"].get<size_t>();
      if (index == calls.size())
        calls.push_back({{"id", call["id"]}, {"name", call["function"]["name"]}, {"arguments", ""}});
      ASSERT_LT(index, calls.size());
      calls[index]["arguments"] =
          calls[index]["arguments"].get<std::string>() + call["function"].value("arguments", "");
    }
  };
  const std::string text =
      "<think>Hm.</think>Yes. <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}</tool_call>\n"
      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  for (const char c : text) {
    RequestOutput output;
    output.tokens.push_back({.token = SharedTestModel().Byte(static_cast<unsigned char>(c))});
    take(output);
  }
  RequestOutput end;
  end.tokens.push_back({.token = TestModel::kEndOfText});
  end.finish_reason = FinishReason::kStop;
  take(end);
  EXPECT_EQ(reason, "tool_calls");
  EXPECT_EQ(content, "Yes.");
  EXPECT_EQ(reasoning, "Hm.");
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["arguments"], R"({"a": "x"})");
  EXPECT_EQ(calls[1]["name"], "g");

  std::vector<CompletionStream> streams;
  streams.push_back(std::move(stream));
  const ordered_json body = ordered_json::parse(
      ResponseBody(identity, SharedTestModel().tokenizer(), request, {whole}, streams, {}));
  const ordered_json& message = body["choices"][0]["message"];
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(message["content"], content);
  EXPECT_EQ(message["reasoning_content"], reasoning);
  ASSERT_EQ(message["tool_calls"].size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(message["tool_calls"][i]["id"], calls[i]["id"]);
    EXPECT_EQ(message["tool_calls"][i]["type"], "function");
    EXPECT_EQ(message["tool_calls"][i]["function"]["arguments"], calls[i]["arguments"]);
  }
}

}  // namespace
}  // namespace tandem
