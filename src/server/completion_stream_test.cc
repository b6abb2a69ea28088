#include "server/completion_stream.h"

#include <gtest/gtest.h>

#include <string>

#include "server/model_testing.h"

namespace tandem {
namespace {

const TestModel& Model() {
  static const TestModel model;
  return model;
}

GenerationRequest OnePrompt(const std::string& prompt) {
  GenerationRequest request;
  request.prompts.push_back({.tokens = Model().Encode(prompt), .text = prompt, .max_tokens = 100});
  return request;
}

RequestOutput Output(const std::string& bytes, FinishReason reason = FinishReason::kNone) {
  RequestOutput output;
  for (const char c : bytes) {
    SampledToken token;
    token.token = Model().Byte(static_cast<unsigned char>(c));
    token.logprob = -0.5F;
    token.top_logprobs = {{token.token, -0.5F}};
    output.tokens.push_back(token);
  }
  output.finish_reason = reason;
  return output;
}

RequestOutput EndOfText() {
  RequestOutput output;
  output.tokens.push_back({.token = TestModel::kEndOfText});
  output.finish_reason = FinishReason::kStop;
  output.stop_token_id = TestModel::kEndOfText;
  return output;
}

// All text of the outputs, one token at a time.
struct Collected {
  std::string text;
  std::vector<TokenRecord> records;
  bool cancelled = false;
};

Collected Feed(CompletionStream* stream, const std::string& bytes) {
  Collected all;
  for (const char c : bytes) {
    auto delta = stream->Append(Output(std::string(1, c)));
    all.text += delta.text;
    all.cancelled = all.cancelled || delta.cancel_in_engine;
    all.records.insert(all.records.end(), delta.records.begin(), delta.records.end());
  }
  return all;
}

TEST(CompletionStream, EndOfTextIsCountedButNotShown) {
  const GenerationRequest request = OnePrompt("p");
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  EXPECT_EQ(stream.Append(Output("hi")).text, "hi");
  const auto last = stream.Append(EndOfText());
  EXPECT_EQ(last.text, "");
  EXPECT_TRUE(last.finished);
  EXPECT_FALSE(last.cancel_in_engine);
  EXPECT_EQ(stream.finish_reason(), "stop");
  EXPECT_EQ(stream.num_output_tokens(), 3);
}

TEST(CompletionStream, CharactersAreNeverSplit) {
  const GenerationRequest request = OnePrompt("p");
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  EXPECT_EQ(stream.Append(Output("\xf0\x9f")).text, "");
  EXPECT_EQ(stream.Append(Output("\x98\x80!")).text, "\xf0\x9f\x98\x80!");
  EXPECT_EQ(stream.Append(Output("\xe2", FinishReason::kLength)).text, "\xef\xbf\xbd");
  EXPECT_EQ(stream.finish_reason(), "length");
}

TEST(CompletionStream, StopStringAcrossTokensEndsAndCancels) {
  GenerationRequest request = OnePrompt("p");
  request.stop = {"END"};
  request.num_logprobs = 0;
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  const Collected all = Feed(&stream, "abENxEND");
  EXPECT_EQ(all.text, "abENx");
  EXPECT_TRUE(all.cancelled);
  EXPECT_EQ(stream.finish_reason(), "stop");
  EXPECT_EQ(stream.stop_string(), "END");
  EXPECT_EQ(all.records.size(), 5U);  // those of END never come
  EXPECT_EQ(stream.num_output_tokens(), 8);
  EXPECT_EQ(stream.Append(Output("more")).text, "");
}

TEST(CompletionStream, StopStringCanBeIncluded) {
  GenerationRequest request = OnePrompt("p");
  request.stop = {"END"};
  request.include_stop_str_in_output = true;
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  EXPECT_EQ(Feed(&stream, "abEND").text, "abEND");
}

TEST(CompletionStream, HeldBackTextComesAtTheEnd) {
  GenerationRequest request = OnePrompt("p");
  request.stop = {"END"};
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  EXPECT_EQ(Feed(&stream, "aE").text, "a");
  const auto last = stream.Append(Output("N", FinishReason::kLength));
  EXPECT_EQ(last.text, "EN");
  EXPECT_TRUE(last.finished);
}

TEST(CompletionStream, StopStringsWaitForMinTokens) {
  GenerationRequest request = OnePrompt("p");
  request.stop = {"x"};
  request.sampling.min_tokens = 2;
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  EXPECT_EQ(Feed(&stream, "xxax").text, "xxa");
}

TEST(CompletionStream, EchoShowsThePromptWithItsLogprobs) {
  GenerationRequest request = OnePrompt("hey");
  request.echo = true;
  request.num_logprobs = 1;
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  RequestOutput prefill;
  prefill.prompt_logprobs = {{.token = Model().Byte('e'), .logprob = -1.0F}};
  EXPECT_EQ(stream.Append(prefill).text, "");
  RequestOutput first = Output("!");
  first.prompt_logprobs = {{.token = Model().Byte('y'), .logprob = -2.0F}};
  const auto delta = stream.Append(first);
  EXPECT_EQ(delta.text, "hey!");
  ASSERT_EQ(delta.records.size(), 4U);
  EXPECT_FALSE(delta.records[0].logprob.has_value());
  EXPECT_EQ(delta.records[1].logprob, -1.0F);
  EXPECT_EQ(delta.records[2].logprob, -2.0F);
  EXPECT_EQ(delta.records[3].text_offset, 3);
}

TEST(CompletionStream, DiscardedOutputLeavesTheEcho) {
  GenerationRequest request = OnePrompt("hey");
  request.echo = true;
  request.discard_output = true;
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  const auto delta = stream.Append(Output("!", FinishReason::kLength));
  EXPECT_EQ(delta.text, "hey");
  EXPECT_TRUE(delta.finished);
  EXPECT_EQ(stream.num_output_tokens(), 0);
}

TEST(CompletionStream, StopTokenIsReported) {
  GenerationRequest request = OnePrompt("p");
  request.sampling.stop_token_ids = {Model().Byte('z')};
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  RequestOutput output = Output("az", FinishReason::kStop);
  output.stop_token_id = Model().Byte('z');
  EXPECT_EQ(stream.Append(output).text, "a");
  EXPECT_EQ(stream.stop_token(), Model().Byte('z'));
}

TEST(CompletionStream, CancelledHasNoFinishReason) {
  const GenerationRequest request = OnePrompt("p");
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  EXPECT_TRUE(stream.Append(Output("", FinishReason::kCancelled)).finished);
  EXPECT_EQ(stream.finish_reason(), "");
}

GenerationRequest WithTools(std::vector<std::string> tools) {
  GenerationRequest request = OnePrompt("p");
  request.kind = GenerationRequest::Kind::kChat;
  request.parser = {.format = ToolFormat::kHermes, .tools = std::move(tools)};
  return request;
}

constexpr const char* kCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

TEST(CompletionStream, CallsArePartsWithIds) {
  const GenerationRequest request = WithTools({"f"});
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  std::string text;
  std::string arguments;
  std::vector<std::string> ids;
  const auto take = [&](const CompletionStream::Delta& delta) {
    for (const AnswerPart& part : delta.parts) {
      if (part.kind == AnswerPart::Kind::kText) text += part.text;
      if (part.kind == AnswerPart::Kind::kCallArguments) arguments += part.text;
    }
    ids.insert(ids.end(), delta.call_ids.begin(), delta.call_ids.end());
  };
  for (const char c : std::string("Well. ") + kCall + "\n" + kCall)
    take(stream.Append(Output(std::string(1, c))));
  take(stream.Append(EndOfText()));
  EXPECT_EQ(text, "Well.");
  EXPECT_EQ(arguments, R"({"a": 1}{"a": 1})");
  ASSERT_EQ(ids.size(), 2U);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(ids[0].substr(0, 5), "call_");
  EXPECT_EQ(stream.num_calls(), 2);
  EXPECT_EQ(stream.finish_reason(), "stop");
}

TEST(CompletionStream, AnAnswerOfOneCallEndsWithIt) {
  GenerationRequest request = WithTools({"f"});
  request.one_call = true;
  CompletionStream stream(&Model().tokenizer(), &request, 0);
  const Collected all = Feed(&stream, std::string(kCall) + "\n" + kCall);
  EXPECT_TRUE(all.cancelled);
  EXPECT_TRUE(stream.finished());
  EXPECT_EQ(stream.finish_reason(), "stop");
  EXPECT_EQ(stream.num_calls(), 1);
}

// The parser sees the special tokens that it needs; others stay hidden.
TEST(CompletionStream, OnlyMarkersAreShownOfSpecialTokens) {
  GenerationRequest request = WithTools({"f"});
  RequestOutput special;
  special.tokens.push_back({.token = TestModel::kEndOfText});
  for (const bool is_marker : {false, true}) {
    request.shown_special_tokens = {is_marker ? TestModel::kEndOfText : Model().Byte('x')};
    CompletionStream stream(&Model().tokenizer(), &request, 0);
    const std::string shown = stream.Append(special).text;
    EXPECT_EQ(shown.empty(), !is_marker) << shown;
    EXPECT_EQ(stream.Append(Output("a")).text, "a");
  }
}

}  // namespace
}  // namespace tandem
