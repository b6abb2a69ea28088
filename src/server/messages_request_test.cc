#include "server/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/messages_error.h"
#include "server/messages_translation.h"
#include "server/model_testing.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// fields: those of the body beside messages and max_tokens.
ordered_json MessagesBody(const std::string& fields, const std::string& content = R"("hi")") {
  return ordered_json::parse(R"({"max_tokens":9,"messages":[{"role":"user","content":)" + content + "}]" +
                             fields + "}");
}

// The error's message, or "ok".
std::string BodyOutcome(const ordered_json& body) {
  GenerationRequest request;
  const auto error = ParseMessagesRequest(body, SharedTestModel().context(), &request);
  return error ? std::to_string(error->status) + " " + error->message : "ok";
}

std::string MessagesFieldsOutcome(const std::string& fields) {
  return BodyOutcome(MessagesBody(fields));
}

// The chat's messages, or the error's message.
ordered_json Conversation(const std::string& messages, const std::string& fields = "") {
  ordered_json chat;
  const auto error =
      TranslateMessagesConversation(ordered_json::parse(R"({"messages":)" + messages + fields + "}"), &chat);
  if (error) return error->message;
  if (chat.contains("continue_final_message")) chat["messages"].push_back("continued");
  return chat["messages"];
}

ordered_json ContentOutcome(const std::string& block) {
  return Conversation(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},
      {"role":"user","content":[)" +
                      block + "]}]");
}

ordered_json ToolFields(const std::string& fields, std::vector<size_t>* indices = nullptr) {
  ordered_json chat = ordered_json::object();
  std::vector<size_t> own;
  const auto error =
      TranslateMessagesTools(ordered_json::parse(fields), &chat, indices == nullptr ? &own : indices);
  return error ? ordered_json(error->message) : chat;
}

TEST(MessagesRequest, MakesThePromptOfAChat) {
  GenerationRequest request;
  const auto body = ordered_json::parse(R"({"model":"test","max_tokens":5,"stream":true,
      "system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}},{"type":"text","text":"t"}],
      "messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
      "temperature":0.5,"top_p":0.9,"top_k":3,"stop_sequences":["x","y"],"seed":7})");
  ASSERT_FALSE(ParseMessagesRequest(body, SharedTestModel().context(), &request));
  EXPECT_EQ(request.kind, GenerationRequest::Kind::kChat);
  EXPECT_EQ(request.prompts[0].tokens, SharedTestModel().Encode("system:s\nt\nuser:a\nb\nassistant:"));
  EXPECT_EQ(request.prompts[0].max_tokens, 5);
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.sampling.seed, 7U);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(request.answer_id.starts_with("msg_"));
  EXPECT_TRUE(request.make_writer);
}

TEST(MessagesRequest, MaxTokensIsNeededAndBoundedByTheContext) {
  ModelContext model = SharedTestModel().context();
  model.default_max_tokens = 3;  // of those that say nothing
  for (const auto& [wanted, expected] : std::vector<std::pair<int, int64_t>>{{32'000, 46}, {10, 10}}) {
    GenerationRequest request;
    ordered_json body = MessagesBody("");
    body["max_tokens"] = wanted;
    ASSERT_FALSE(ParseMessagesRequest(body, model, &request));
    EXPECT_EQ(request.prompts[0].max_tokens, expected);
    EXPECT_EQ(request.prompts[0].tokens.size(), 18U);
  }
  ordered_json body = MessagesBody("");
  body.erase("max_tokens");
  EXPECT_EQ(BodyOutcome(body), "400 max_tokens: field required");
  body["max_tokens"] = 0;
  EXPECT_EQ(BodyOutcome(body), "400 max_tokens must be at least 1, got 0");
}

TEST(MessagesRequest, LongPromptsAreNamedAsClientsExpect) {
  ordered_json body = MessagesBody("", '"' + std::string(100, 'x') + '"');
  EXPECT_EQ(BodyOutcome(body), "400 prompt is too long: 116 tokens > 63 maximum");
  // 16 are the template's: one token has to be left for the answer.
  EXPECT_EQ(BodyOutcome(MessagesBody("", '"' + std::string(47, 'x') + '"')), "ok");
  EXPECT_EQ(BodyOutcome(MessagesBody("", '"' + std::string(48, 'x') + '"')),
            "400 prompt is too long: 64 tokens > 63 maximum");
}

TEST(MessagesRequest, TokensAreCountedAsTheyWillBe) {
  int64_t num_tokens = 0;
  ordered_json body = MessagesBody(R"(,"system":"be kind")");
  body.erase("max_tokens");
  ASSERT_FALSE(CountMessagesTokens(body, SharedTestModel().context(), &num_tokens));
  EXPECT_EQ(num_tokens, std::ssize(SharedTestModel().Encode("system:be kind\nuser:hi\nassistant:")));
  // More than fits can be counted.
  ASSERT_FALSE(CountMessagesTokens(MessagesBody("", '"' + std::string(100, 'x') + '"'),
                                   SharedTestModel().context(), &num_tokens));
  EXPECT_EQ(num_tokens, 116);
  const auto error = CountMessagesTokens(ordered_json::parse(R"({"messages":[]})"),
                                         SharedTestModel().context(), &num_tokens);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, StartsWith("messages: must be a list"));
}

TEST(MessagesRequest, WhatClaudeCodeSendsIsTaken) {
  EXPECT_EQ(MessagesFieldsOutcome(R"(,"metadata":{"user_id":"u"},"thinking":{"type":"adaptive"},
      "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
      "betas":["claude-code-20250219"],"container":null,"mcp_servers":[],"output_config":{"effort":"medium"},
      "service_tier":"auto","stream":true,
      "tool_choice":{"type":"auto"},"cache_control":{"type":"ephemeral"})"),
            "ok");
}

TEST(MessagesRequest, ErrorsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"temperature":1.5)", "temperature must be in [0, 1], got 1.5"},
      {R"(,"top_k":-1)", "top_k must be at least 0"},
      {R"(,"stop_sequences":"x")", "stop_sequences must be a list of strings, not a string"},
      {R"(,"stop_sequences":[1])", "stop_sequences must be strings"},
      {R"(,"stop_sequences":[""])", "stop_sequences"},
      {R"(,"stream":"yes")", "stream must be a boolean"},
      {R"(,"service_tier":"gold")", "service_tier must be one of auto, standard_only"},
      {R"(,"thinking":{"type":"maybe"})", "thinking.type must be one of"},
      {R"(,"thinking":{})", "thinking.type: field required"},
      {R"(,"thinking":true)", "thinking must be an object"},
      {R"(,"output_config":{"effort":"huge"})", "output_config.effort must be one of"},
      {R"(,"output_config":{"format":{"type":"text"}})", "output_config.format.type: must be"},
      {R"(,"output_format":{"type":"json_schema"})", "output_format.schema: field required"},
      {R"(,"container":"c")", "container is not supported"},
      {R"(,"mcp_servers":[{"type":"url"}])", "mcp_servers is not supported"},
      {R"(,"stop":["x"])", "stop is not supported: use stop_sequences"},
      {R"(,"temprature":1)", "did you mean temperature?"},
      {R"(,"system":5)", "system: must be a string or a list of blocks"},
      {R"(,"tools":[{"name":"f"}])", "tools.0.input_schema: field required"},
  };
  for (const auto& [fields, message] : cases) {
    const std::string outcome = MessagesFieldsOutcome(fields);
    EXPECT_THAT(outcome, StartsWith("400 ")) << fields;
    EXPECT_THAT(outcome, HasSubstr(message)) << fields;
  }
  EXPECT_THAT(MessagesFieldsOutcome(R"(,"model":"other")"), StartsWith("404 The model `other`"));
  EXPECT_EQ(BodyOutcome(ordered_json::parse("[]")),
            "400 the request body must be a JSON object, not an array");
}

TEST(MessagesRequest, ASaltIsThatOfAChat) {
  GenerationRequest request;
  ASSERT_FALSE(
      ParseMessagesRequest(MessagesBody(R"(,"cache_salt":"s")"), SharedTestModel().context(), &request));
  EXPECT_EQ(request.cache_sharing.salt, "s");
  EXPECT_THAT(MessagesFieldsOutcome(R"(,"cache_salt":"")"), StartsWith("400 cache_salt must not be empty"));
}

TEST(MessagesRequest, UnknownFieldsAreNamed) {
  GenerationRequest request;
  ASSERT_FALSE(
      ParseMessagesRequest(MessagesBody(R"(,"frobnicate":1)"), SharedTestModel().context(), &request));
  EXPECT_THAT(request.ignored_fields, ElementsAre("frobnicate"));
}

TEST(MessagesRequest, ErrorsAreAnsweredInTheApisForm) {
  const auto parsed = [](const ApiError& error) { return ordered_json::parse(MessagesErrorBody(error)); };
  const ordered_json body = parsed(MessagesFieldError("messages.0", "is wrong"));
  EXPECT_EQ(body, ordered_json::parse(R"({"type":"error","error":{"type":"invalid_request_error",
      "message":"messages.0: is wrong"},"request_id":null})"));
  for (const auto& [status, type] : std::vector<std::pair<int, const char*>>{{401, "authentication_error"},
                                                                             {403, "permission_error"},
                                                                             {404, "not_found_error"},
                                                                             {405, "invalid_request_error"},
                                                                             {413, "request_too_large"},
                                                                             {429, "rate_limit_error"},
                                                                             {500, "api_error"},
                                                                             {503, "overloaded_error"}}) {
    EXPECT_EQ(parsed({.status = status, .message = "m", .param = {}, .code = {}})["error"]["type"], type);
  }
  const HttpResponse busy = MessagesErrorResponse(Unavailable("busy", "queue_full"));
  EXPECT_EQ(busy.status, 503);
  ASSERT_EQ(busy.headers.size(), 1U);
  EXPECT_EQ(busy.headers[0].name, "Retry-After");
}

TEST(MessagesConversation, ToolsTurnsBecomeThoseOfAChat) {
  const ordered_json chat = Conversation(R"([
      {"role":"user","content":"weather?"},
      {"role":"system","content":"be brief"},
      {"role":"assistant","content":[
          {"type":"thinking","thinking":"let me see","signature":""},{"type":"redacted_thinking","data":"x"},
          {"type":"text","text":"looking"},
          {"type":"tool_use","id":"toolu_1","name":"f","input":{"a":[1,"é"]}},
          {"type":"tool_use","id":"toolu_2","name":"g","input":{}}]},
      {"role":"user","content":[
          {"type":"text","text":"and hurry","cache_control":{"type":"ephemeral"}},
          {"type":"tool_result","tool_use_id":"toolu_1","content":"rain"},
          {"type":"tool_result","tool_use_id":"toolu_2","is_error":true,
           "content":[{"type":"text","text":"no"},{"type":"text","text":"luck"}]}]},
      {"role":"assistant","content":[{"type":"tool_use","id":"toolu_3","name":"g","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_3"}]}])");
  EXPECT_EQ(chat, ordered_json::parse(R"([
      {"role":"user","content":"weather?"},
      {"role":"system","content":"be brief"},
      {"role":"assistant","content":"looking","reasoning_content":"let me see","tool_calls":[
          {"id":"toolu_1","type":"function","function":{"name":"f","arguments":"{\"a\":[1,\"é\"]}"}},
          {"id":"toolu_2","type":"function","function":{"name":"g","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"toolu_1","content":"rain"},
      {"role":"tool","tool_call_id":"toolu_2","content":"Error: no\nluck"},
      {"role":"user","content":"and hurry"},
      {"role":"assistant","content":"","tool_calls":[
          {"id":"toolu_3","type":"function","function":{"name":"g","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"toolu_3","content":""}])"));
}

TEST(MessagesConversation, TheAssistantsLastMessageIsGoneOnWith) {
  EXPECT_EQ(Conversation(R"([{"role":"user","content":"a"},{"role":"assistant","content":"Sure, "}])"),
            ordered_json::parse(
                R"([{"role":"user","content":"a"},{"role":"assistant","content":"Sure, "},"continued"])"));
  EXPECT_EQ(Conversation(R"([{"role":"user","content":"a"},{"role":"assistant","content":[]}])"),
            ordered_json::parse(R"([{"role":"user","content":"a"}])"));
  EXPECT_THAT(Conversation(R"([{"role":"user","content":"a"},{"role":"assistant","content":[
      {"type":"tool_use","id":"i","name":"f","input":{}}]}])")
                  .get<std::string>(),
              StartsWith("messages.1: the tool_use blocks"));
  GenerationRequest request;
  ordered_json body = MessagesBody("");
  body["messages"].push_back({{"role", "assistant"}, {"content", "Sure, "}});
  ASSERT_FALSE(ParseMessagesRequest(body, SharedTestModel().context(), &request));
  EXPECT_EQ(request.prompts[0].tokens, SharedTestModel().Encode("user:hi\nassistant:Sure, "));
}

TEST(MessagesConversation, TextOfDocumentsAndSearchesIsRead) {
  EXPECT_EQ(
      ContentOutcome(R"({"type":"document","title":"T","source":{"type":"text","media_type":"text/plain",
      "data":"D"}},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"C"}]}},
      {"type":"search_result","title":"S","source":"u","content":[{"type":"text","text":"R"}]})")
          .back()["content"],
      "T\nD\nC\nS\nu\nR");
}

TEST(MessagesConversation, ErrorsNameTheBlock) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"image","source":{"type":"base64"}})", "messages.2.content.0: images are not supported"},
      {R"({"type":"document","source":{"type":"base64"}})",
       "messages.2.content.0.source: only documents of text"},
      {R"({"type":"video"})", "messages.2.content.0: content of type \"video\" is not supported"},
      {R"({"type":"tool_use","id":"i","name":"f","input":{}})",
       "messages.2.content.0: content of type \"tool_use\" is not supported here"},
      {R"({"type":"text"})", "messages.2.content.0.text: field required"},
      {R"({"type":"text","text":1})", "messages.2.content.0.text must be a string"},
      {R"({"text":"a"})", "messages.2.content.0.type: field required"},
      {R"("a")", "messages.2.content.0: must be an object"},
      {R"({"type":"tool_result"})", "messages.2.content.0.tool_use_id: field required"},
      {R"({"type":"tool_result","tool_use_id":"i","is_error":1})",
       "messages.2.content.0.is_error must be a boolean"},
      {R"({"type":"tool_result","tool_use_id":"i","content":[{"type":"image"}]})",
       "messages.2.content.0.content.0: images are not supported"},
  };
  for (const auto& [block, message] : cases) {
    const ordered_json outcome = ContentOutcome(block);
    ASSERT_TRUE(outcome.is_string()) << block;
    EXPECT_THAT(outcome.get<std::string>(), StartsWith(message));
  }
  EXPECT_EQ(Conversation(R"([{"role":"user"}])"), "messages.0.content: field required");
  EXPECT_EQ(Conversation(R"([5])"), "messages.0: must be an object, not an integer");
  EXPECT_EQ(Conversation(R"([{"role":"tool","content":"x"}])"),
            "messages.0.role must be one of user, assistant, system, got \"tool\"");
}

TEST(MessagesTools, BecomeFunctionsOrAreDropped) {
  std::vector<size_t> indices;
  const ordered_json chat = ToolFields(R"({"tools":[
      {"type":"web_search_20250305","name":"web_search","max_uses":5},
      {"name":"f","description":"d","input_schema":{"type":"object"},"defer_loading":true,
       "cache_control":{"type":"ephemeral"}},
      {"type":"bash_20250124","name":"bash"},
      {"type":"custom","name":"g","input_schema":{"type":"object"},"strict":true}],
      "tool_choice":{"type":"any","disable_parallel_tool_use":true}})",
                                       &indices);
  EXPECT_EQ(indices, (std::vector<size_t>{1, 2, 3}));
  ASSERT_EQ(chat["tools"].size(), 3U) << chat;
  EXPECT_EQ(chat["tools"][0], ordered_json::parse(R"({"type":"function","function":{"name":"f",
      "description":"d","parameters":{"type":"object"}}})"));
  EXPECT_EQ(chat["tools"][1]["function"]["name"], "bash");
  EXPECT_TRUE(chat["tools"][1]["function"]["parameters"]["properties"].contains("command"));
  EXPECT_EQ(chat["tools"][2]["function"]["strict"], true);
  EXPECT_EQ(chat["tool_choice"], "required");
  EXPECT_EQ(chat["parallel_tool_calls"], false);
}

TEST(MessagesTools, ChoicesAreThoseOfAChat) {
  const std::string tools = R"({"tools":[{"name":"f","input_schema":{}}],"tool_choice":)";
  EXPECT_EQ(ToolFields(tools + R"({"type":"auto"}})")["tool_choice"], "auto");
  EXPECT_EQ(ToolFields(tools + R"({"type":"none"}})")["tool_choice"], "none");
  EXPECT_EQ(ToolFields(tools + R"({"type":"tool","name":"f"}})")["tool_choice"],
            ordered_json::parse(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_FALSE(ToolFields(tools + "null}").contains("tool_choice"));
  EXPECT_EQ(ToolFields(tools + R"({"type":"tool"}})"), "tool_choice.name: field required");
  EXPECT_EQ(ToolFields(R"({"tool_choice":{"type":"auto"}})"), ordered_json::object());
  EXPECT_THAT(ToolFields(R"({"tool_choice":{"type":"any"},"tools":[{"type":"web_search_1","name":"w"}]})")
                  .get<std::string>(),
              StartsWith("tool_choice: demands a tool"));
}

TEST(MessagesTools, ErrorsNameTheTool) {
  EXPECT_EQ(ToolFields(R"({"tools":{}})"), "tools: must be a list, not an object");
  EXPECT_EQ(ToolFields(R"({"tools":[1]})"), "tools.0: must be an object, not an integer");
  EXPECT_EQ(ToolFields(R"({"tools":[{"input_schema":{}}]})"), "tools.0.name: field required");
  EXPECT_EQ(ToolFields(R"({"tools":[{"name":"f","input_schema":[]}]})"),
            "tools.0.input_schema must be an object, not an array");
  EXPECT_THAT(ToolFields(R"({"tools":[{"type":"computer_20250124","name":"computer"}]})").get<std::string>(),
              StartsWith("tools.0: the computer tool"));
}

}  // namespace
}  // namespace tandem
