#include "server/responses_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/json_text.h"
#include "server/model_testing.h"
#include "server/responses_input.h"
#include "server/responses_tools.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

ResponseStore& TestStore() {
  static ResponseStore store({.replica_id = "test"});
  return store;
}

std::optional<ApiError> ParseResponses(const std::string& body, GenerationRequest* request,
                                       const std::string& key_name = "") {
  return ParseResponsesRequest(ordered_json::parse(body), SharedTestModel().context(),
                               {.store = &TestStore(), .key_name = key_name}, request);
}

// The prompt's text, or the error's status, code and param.
std::string ResponsesPromptOf(const std::string& body, const std::string& key_name = "") {
  GenerationRequest request;
  if (const auto error = ParseResponses(body, &request, key_name)) {
    return std::to_string(error->status) + " " + error->code + " " + error->param;
  }
  return SharedTestModel().tokenizer().Decode(request.prompts.at(0).tokens, false);
}

// The messages that a list of items makes, or the error's param.
std::string MessagesOf(const std::string& items) {
  ResponsesMessages messages;
  const auto list = ordered_json::parse(items);
  for (size_t i = 0; i < list.size(); ++i) {
    if (const auto error = AddResponsesItem(list[i], "input[" + std::to_string(i) + "]", &messages)) {
      return error->param;
    }
  }
  FinishMessages(&messages);
  EXPECT_EQ(messages.messages.size(), messages.params.size());
  return messages.messages.dump();
}

TEST(ResponsesRequest, TextAndItemsAndInstructionsBecomeAChat) {
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"hi","model":"test"})"), "user:hi\nassistant:");
  EXPECT_EQ(ResponsesPromptOf(R"({"instructions":"be brief","input":[{"role":"user","content":[
                {"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]})"),
            "system:be brief\nuser:a\nb\nassistant:");
}

TEST(ResponsesRequest, ItemsOfOneTurnAreOneMessage) {
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":"x"},
                           {"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],
                            "content":[{"type":"reasoning_text","text":"why"}],"encrypted_content":null},
                           {"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},
                           {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
                           {"type":"function_call","call_id":"c2","name":"g","namespace":"mcp__n__","arguments":"{}"},
                           {"type":"function_call_output","call_id":"c1","output":"one"},
                           {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]},
                           {"type":"reasoning","summary":[{"type":"summary_text","text":"unfinished"}]}])"),
            ordered_json::parse(R"([{"role":"user","content":"x"},
                {"role":"assistant","content":"a","reasoning_content":"why","tool_calls":[
                  {"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},
                  {"id":"c2","type":"function","function":{"name":"mcp__n__g","arguments":"{}"}}]},
                {"role":"tool","tool_call_id":"c1","content":"one"},
                {"role":"tool","tool_call_id":"c2","content":"two"}])")
                .dump());
}

TEST(ResponsesRequest, InputsOfCustomToolsAreArguments) {
  EXPECT_EQ(
      MessagesOf(R"([{"type":"custom_tool_call","call_id":"c","name":"sh","input":"ls \"x\""},
                           {"type":"custom_tool_call_output","call_id":"c","output":"y"}])"),
      ordered_json::parse(R"([{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",
                "function":{"name":"sh","arguments":"{\"input\":\"ls \\\"x\\\"\"}"}}]},
                {"role":"tool","tool_call_id":"c","content":"y"}])")
          .dump());
}

TEST(ResponsesRequest, WrongItemsAreNamed) {
  EXPECT_EQ(
      MessagesOf(R"([{"role":"user","content":"x"},{"role":"user","content":[{"type":"input_image"}]}])"),
      "input[1].content[0]");
  EXPECT_EQ(MessagesOf(R"([{"type":"computer_call"}])"), "input[0]");
  EXPECT_EQ(MessagesOf(R"([{"type":"function_call","name":"f","arguments":"{}"}])"), "input[0].call_id");
  EXPECT_EQ(MessagesOf(R"([{"type":"function_call_output","call_id":"c"}])"), "input[0].output");
  EXPECT_EQ(MessagesOf(R"([{"content":"x"}])"), "input[0].role");
  EXPECT_EQ(MessagesOf(R"([{"type":"web_search_call","id":"w"}])"), "[]");
}

TEST(ResponsesRequest, ErrorsNameItsOwnFields) {
  EXPECT_EQ(ResponsesPromptOf(R"({})"), "400 invalid_value input");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":7})"), "400 invalid_value input");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":[]})"), "400 invalid_value input");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"x","model":"other"})"), "404 model_not_found model");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"x","max_output_tokens":0})"),
            "400 invalid_value max_output_tokens");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"x","temperature":7})"), "400 invalid_value temperature");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"x","reasoning":{"effort":"huge"}})"),
            "400 invalid_value reasoning.effort");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"x","text":{"format":{"type":"yaml"}}})"),
            "400 invalid_value text.format.type");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"x","background":true})"), "400 unsupported_field background");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"x","previous_response_id":"resp_none"})"),
            "400 previous_response_not_found previous_response_id");
  EXPECT_EQ(
      ResponsesPromptOf(
          R"({"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f","parameters":7}]})"),
      "400 invalid_value tools[1].parameters");
}

TEST(ResponsesRequest, ASaltIsThatOfAChat) {
  GenerationRequest request;
  request.cache_sharing.key_name = "alice";
  ASSERT_FALSE(ParseResponses(R"({"input":"hi","cache_salt":"s"})", &request));
  EXPECT_EQ(request.cache_sharing.key_name, "alice");
  EXPECT_EQ(request.cache_sharing.salt, "s");
  EXPECT_EQ(ResponsesPromptOf(R"({"input":"hi","cache_salt":3})"), "400 invalid_value cache_salt");
}

TEST(ResponsesRequest, TheBoundIsCutToTheContext) {
  GenerationRequest request;
  ASSERT_FALSE(ParseResponses(R"({"input":"hi","max_output_tokens":1000000})", &request));
  EXPECT_EQ(request.prompts[0].max_tokens, TestModel::kMaxModelLen - std::ssize(request.prompts[0].tokens));
  request = {};
  ASSERT_FALSE(ParseResponses(R"({"input":"hi","max_output_tokens":3})", &request));
  EXPECT_EQ(request.prompts[0].max_tokens, 3);
}

std::string TooLongText() {
  return std::string(static_cast<size_t>(TestModel::kMaxModelLen), 'x');
}

TEST(ResponsesRequest, AStreamWhoseInputIsTooLongFailsAsAStream) {
  GenerationRequest request;
  const auto error = ParseResponses(R"({"stream":true,"input":")" + TooLongText() + "\"}", &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "context_length_exceeded");
  EXPECT_EQ(error->param, "input");
  const HttpResponse response = request.error_response(*error);
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.content_type.starts_with("text/event-stream"));
  EXPECT_TRUE(response.body.starts_with("event: response.created\ndata: {"));
  const size_t failed = response.body.find("event: response.failed\ndata: ");
  ASSERT_NE(failed, std::string::npos);
  const auto event = ordered_json::parse(response.body.substr(failed + 29));
  EXPECT_EQ(event["response"]["status"], "failed");
  EXPECT_EQ(event["response"]["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(event["response"]["model"], "test");
  EXPECT_EQ(request.error_response(InvalidRequest("x", "y")).status, 400);

  GenerationRequest plain;
  const auto plain_error = ParseResponses(R"({"input":")" + TooLongText() + "\"}", &plain);
  ASSERT_TRUE(plain_error);
  EXPECT_EQ(plain.error_response(*plain_error).status, 400);
}

TEST(ResponsesRequest, TruncationLeavesOutTheOldestTurns) {
  const std::string body = R"("instructions":"s","input":[{"role":"user","content":")" + TooLongText() +
                           R"("},{"role":"assistant","content":"a"},{"role":"user","content":"b"},
                              {"role":"assistant","content":"c"},{"role":"user","content":"d"}]})";
  EXPECT_EQ(ResponsesPromptOf("{" + body), "400 context_length_exceeded input");
  EXPECT_EQ(ResponsesPromptOf(R"({"truncation":"auto",)" + body),
            "system:s\nuser:b\nassistant:c\nuser:d\nassistant:");
  EXPECT_EQ(ResponsesPromptOf(R"({"truncation":"auto","input":")" + TooLongText() + "\"}"),
            "400 context_length_exceeded input");
  EXPECT_EQ(ResponsesPromptOf(R"({"truncation":"some","input":"x"})"), "400 invalid_value truncation");
}

TEST(ResponsesRequest, GoesOnFromWhatTheSameKeyStored) {
  const std::string id = TestStore().NewId();
  const std::string item_id = ResponseItemId("msg", id, "0");
  TestStore().Add(id, "alice",
                  {.body = R"({"output":[{"id":")" + item_id +
                           R"(","type":"message","role":"assistant","content":[
                             {"type":"output_text","text":"hello"}]}]})",
                   .input = R"([{"id":"i","type":"message","role":"user","content":"hi"}])"});
  const std::string body = R"({"previous_response_id":")" + id + R"(","instructions":"s","input":"again"})";
  EXPECT_EQ(ResponsesPromptOf(body, "alice"), "system:s\nuser:hi\nassistant:hello\nuser:again\nassistant:");
  EXPECT_EQ(ResponsesPromptOf(body, "bob"), "400 previous_response_not_found previous_response_id");
  const std::string reference = R"({"input":[{"type":"item_reference","id":")" + item_id + R"("},
                                            {"role":"user","content":"x"}]})";
  EXPECT_EQ(ResponsesPromptOf(reference, "alice"), "assistant:hello\nuser:x\nassistant:");
  EXPECT_EQ(ResponsesPromptOf(reference, "bob"), "400 invalid_value input[0].id");
}

std::string ToolsOf(const std::string& body, ResponsesTools* tools) {
  const auto error = ReadResponsesTools(ordered_json::parse(body), tools);
  return error ? error->param : "ok";
}

TEST(ResponsesTools, AreFunctionsUnderNamesOfTheirOwn) {
  ResponsesTools tools;
  ASSERT_EQ(ToolsOf(R"({"tools":[
      {"type":"function","name":"f","description":"d","strict":true,"parameters":{"type":"object"}},
      {"type":"web_search"},
      {"type":"custom","name":"sh"},
      {"type":"namespace","name":"mcp__n__","tools":[{"type":"function","name":"g","parameters":{}}]}],
      "tool_choice":{"type":"function","name":"g","namespace":"mcp__n__"}})",
                    &tools),
            "ok");
  ASSERT_EQ(tools.functions.size(), 3U);
  EXPECT_EQ(
      tools.functions[0].dump(),
      R"({"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}})");
  EXPECT_EQ(tools.functions[1]["function"]["parameters"]["required"], ordered_json::array({"input"}));
  EXPECT_EQ(tools.functions[2]["function"]["name"], "mcp__n__g");
  EXPECT_EQ(tools.params.at(2), "tools[3].tools[0]");
  EXPECT_EQ(tools.Find("mcp__n__g").name, "g");
  EXPECT_EQ(tools.Find("mcp__n__g").name_space, "mcp__n__");
  EXPECT_TRUE(tools.Find("sh").is_custom);
  EXPECT_EQ(tools.Find("unknown").name, "unknown");
  EXPECT_EQ(tools.choice.dump(), R"({"type":"function","function":{"name":"mcp__n__g"}})");
}

TEST(ResponsesTools, AllowedOnesAreTheOnlyOnes) {
  ResponsesTools tools;
  ASSERT_EQ(ToolsOf(R"({"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],
      "tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]}})",
                    &tools),
            "ok");
  ASSERT_EQ(tools.functions.size(), 1U);
  EXPECT_EQ(tools.functions[0]["function"]["name"], "g");
  EXPECT_EQ(tools.params.at(0), "tools[1]");
  EXPECT_EQ(tools.choice, "required");
}

TEST(ResponsesTools, WrongOnesAreNamed) {
  const auto outcome = [](const std::string& body) {
    ResponsesTools tools;
    return ToolsOf(body, &tools);
  };
  EXPECT_EQ(outcome(R"({"tools":[{"type":"function","function":{"name":"f"}}]})"), "tools[0].function");
  EXPECT_EQ(outcome(R"({"tools":[{"type":"functoin","name":"f","parameters":{}}]})"), "tools[0].type");
  EXPECT_EQ(outcome(R"({"tools":[{"type":"custom","name":"f","format":{"type":"grammar"}}]})"),
            "tools[0].format");
  EXPECT_EQ(outcome(R"({"tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]})"),
            "tools[1].name");
  EXPECT_EQ(outcome(R"({"tool_choice":"any"})"), "tool_choice");
  EXPECT_EQ(outcome(R"({"tool_choice":{"type":"function","name":"f"}})"), "tool_choice.name");
  EXPECT_EQ(outcome(R"({"tool_choice":{"type":"web_search"}})"), "tool_choice.type");
  EXPECT_EQ(outcome(R"({"tools":[{"type":"web_search"}],"tool_choice":"auto"})"), "ok");
}

TEST(ResponsesTools, TextOfCustomToolsIsTakenOut) {
  EXPECT_EQ(CustomToolInput(R"({"input":"a\nb"})"), "a\nb");
  EXPECT_EQ(CustomToolInput(R"({"input":)"), R"({"input":)");
  EXPECT_EQ(CustomToolInput("[1]"), "[1]");
}

}  // namespace
}  // namespace tandem
