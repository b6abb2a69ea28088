#include "server/generation_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/model_testing.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

std::optional<ApiError> Completion(const char* body, GenerationRequest* request) {
  return ParseCompletionRequest(ordered_json::parse(body), SharedTestModel().context(), request);
}

std::optional<ApiError> Chat(const std::string& body, GenerationRequest* request) {
  return ParseChatRequest(ordered_json::parse(body), SharedTestModel().context(), request);
}

// "status param" of the error, or "ok".
std::string CompletionOutcome(const std::string& fields) {
  GenerationRequest request;
  const auto error = Completion((R"({"prompt":"hello")" + fields + "}").c_str(), &request);
  return error ? std::to_string(error->status) + " " + error->param : "ok";
}

std::string ChatOutcome(const std::string& fields) {
  GenerationRequest request;
  const auto error = Chat(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}", &request);
  return error ? std::to_string(error->status) + " " + error->param : "ok";
}

std::string MessagesOutcome(const std::string& messages) {
  GenerationRequest request;
  const auto error = Chat(R"({"messages":)" + messages + "}", &request);
  return error ? error->param : "ok";
}

TEST(CompletionRequest, DefaultsAreTheApis) {
  GenerationRequest request;
  ASSERT_FALSE(Completion(R"({"prompt":"hello"})", &request));
  ASSERT_EQ(request.prompts.size(), 1U);
  EXPECT_EQ(request.prompts[0].tokens, SharedTestModel().Encode("hello"));
  EXPECT_EQ(request.prompts[0].max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1.0F);
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.sampling.num_top_logprobs, -1);
}

TEST(CompletionRequest, NullMeansDefaultAndUnknownFieldsAreIgnored) {
  EXPECT_EQ(CompletionOutcome(
                R"(,"temperature":null,"n":null,"stop":null,"logprobs":null,"stream":null,"model":null,
      "logit_bias":null,"max_tokens":null,"seed":null,"user":"u","anything":{"a":1})"),
            "ok");
}

TEST(CompletionRequest, TakesAllKindsOfPrompts) {
  GenerationRequest ids;
  ASSERT_FALSE(Completion(R"({"prompt":[104,105]})", &ids));
  EXPECT_EQ(ids.prompts[0].tokens, (std::vector<int32_t>{104, 105}));
  GenerationRequest texts;
  ASSERT_FALSE(Completion(R"({"prompt":["a","bc"],"n":2})", &texts));
  EXPECT_EQ(texts.prompts.size(), 2U);
  GenerationRequest lists;
  ASSERT_FALSE(Completion(R"({"prompt":[[1,2],[3]],"echo":true})", &lists));
  EXPECT_EQ(lists.prompts[1].tokens, (std::vector<int32_t>{3}));
  EXPECT_EQ(lists.prompts[1].text, "\x03");
}

TEST(CompletionRequest, ErrorsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"temperature":2.1)", "temperature"},
      {R"(,"temperature":"1")", "temperature"},
      {R"(,"temperature":1e300)", "temperature"},
      {R"(,"top_p":0)", "top_p"},
      {R"(,"top_k":-2)", "top_k"},
      {R"(,"top_k":1.5)", "top_k"},
      {R"(,"min_p":-0.1)", "min_p"},
      {R"(,"presence_penalty":3)", "presence_penalty"},
      {R"(,"frequency_penalty":-3)", "frequency_penalty"},
      {R"(,"repetition_penalty":0)", "repetition_penalty"},
      {R"(,"seed":1.5)", "seed"},
      {R"(,"seed":1e30)", "seed"},
      {R"(,"stop":[""])", "stop"},
      {R"(,"stop":5)", "stop"},
      {R"(,"stop":["a",1])", "stop"},
      {R"(,"stop_token_ids":[-1])", "stop_token_ids"},
      {R"(,"stop_token_ids":[257])", "stop_token_ids"},
      {R"(,"n":0)", "n"},
      {R"(,"n":129)", "n"},
      {R"(,"n":true)", "n"},
      {R"(,"best_of":2)", "best_of"},
      {R"(,"logprobs":21)", "logprobs"},
      {R"(,"logprobs":"yes")", "logprobs"},
      {R"(,"max_tokens":0)", "max_tokens"},
      {R"(,"max_tokens":-1)", "max_tokens"},
      {R"(,"max_tokens":99999999999999999999)", "max_tokens"},
      {R"(,"min_tokens":17)", "min_tokens"},
      {R"(,"logit_bias":{"x":1})", "logit_bias"},
      {R"(,"logit_bias":{"5":101})", "logit_bias"},
      {R"(,"logit_bias":[1])", "logit_bias"},
      {R"(,"stream":"yes")", "stream"},
      {R"(,"stream_options":{"include_usage":true})", "stream_options"},
      {R"(,"stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"(,"response_format":{"type":"json"})", "response_format.type"},
      {R"(,"service_tier":"gold")", "service_tier"},
      {R"(,"service_tier":"")", "service_tier"},
      {R"(,"service_tier":"FLEX")", "service_tier"},
      {R"(,"service_tier":1)", "service_tier"},
      {R"(,"suffix":"x")", "suffix"},
      {R"(,"cache_salt":"")", "cache_salt"},
      {R"(,"cache_salt":7)", "cache_salt"},
      {R"(,"cache_prompt":0)", "cache_prompt"},
      {R"(,"echo":1)", "echo"},
      {R"(,"prompt":[])", "prompt"},
      {R"(,"prompt":"")", "prompt"},
      {R"(,"prompt":["a",[1]])", "prompt"},
      {R"(,"prompt":[1,"a"])", "prompt"},
      {R"(,"prompt":[1.5])", "prompt"},
      {R"(,"prompt":[300])", "prompt"},
      {R"(,"prompt":[[]])", "prompt"},
      {R"(,"prompt":{"a":1})", "prompt"},
  };
  for (const auto& [fields, param] : cases) {
    EXPECT_EQ(CompletionOutcome(fields), "400 " + std::string(param)) << fields;
  }
  EXPECT_EQ(CompletionOutcome(R"(,"model":"other")"), "404 model");
  EXPECT_EQ(CompletionOutcome(R"(,"model":"alias")"), CompletionOutcome(R"(,"model":"test")"));
  EXPECT_EQ(CompletionOutcome(R"(,"model":7)"), "400 model");
}

TEST(CompletionRequest, SaysWithWhomItsCacheIsShared) {
  GenerationRequest plain;
  plain.cache_sharing.key_name = "alice";
  ASSERT_FALSE(Completion(R"({"prompt":"a","cache_salt":null,"cache_prompt":true})", &plain));
  EXPECT_EQ(plain.cache_sharing.key_name, "alice");
  EXPECT_EQ(plain.cache_sharing.salt, "");
  EXPECT_FALSE(plain.cache_sharing.alone);
  GenerationRequest salted;
  ASSERT_FALSE(Completion(R"({"prompt":"a","cache_salt":"s","cache_prompt":false})", &salted));
  EXPECT_EQ(salted.cache_sharing.salt, "s");
  EXPECT_TRUE(salted.cache_sharing.alone);
}

TEST(CompletionRequest, MaxTokensZeroNeedsEcho) {
  GenerationRequest request;
  ASSERT_FALSE(Completion(R"({"prompt":"hello","echo":true,"max_tokens":0,"logprobs":1})", &request));
  EXPECT_TRUE(request.discard_output);
  EXPECT_EQ(request.prompts[0].max_tokens, 1);
  EXPECT_EQ(request.sampling.num_prompt_top_logprobs, 1);
}

TEST(CompletionRequest, ContextErrorHasBothNumbers) {
  GenerationRequest request;
  const auto error = Completion(R"({"prompt":"hello","max_tokens":60})", &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "context_length_exceeded");
  EXPECT_NE(error->message.find("64 tokens"), std::string::npos);
  EXPECT_NE(error->message.find("65 tokens (5 in the prompt; 60 for the completion)"), std::string::npos);
  GenerationRequest fits;
  EXPECT_FALSE(Completion(R"({"prompt":"hello","max_tokens":59})", &fits));
}

TEST(CompletionRequest, GenerationConfigGivesTheDefaults) {
  ModelContext context = SharedTestModel().context();
  context.defaults.temperature = 0.2F;
  context.defaults.top_k = 20;
  GenerationRequest request;
  ASSERT_FALSE(ParseCompletionRequest(ordered_json::parse(R"({"prompt":"a","top_k":5})"), context, &request));
  EXPECT_EQ(request.sampling.temperature, 0.2F);
  EXPECT_EQ(request.sampling.top_k, 5);
}

TEST(ServiceTier, FlexIsFlexibleAndOthersAreNot) {
  const std::string prompt = R"({"prompt":"a","service_tier":)";
  const std::string messages = R"({"messages":[{"role":"user","content":"a"}],"service_tier":)";
  for (const char* tier : {"auto", "default", "flex", "scale", "priority", "fast"}) {
    GenerationRequest completion;
    ASSERT_FALSE(Completion((prompt + '"' + tier + "\"}").c_str(), &completion)) << tier;
    GenerationRequest chat;
    ASSERT_FALSE(Chat(messages + '"' + tier + "\"}", &chat)) << tier;
    for (const GenerationRequest* request : {&completion, &chat}) {
      EXPECT_EQ(request->flexible, std::string(tier) == "flex") << tier;
      EXPECT_TRUE(request->names_service_tier);
    }
  }
  GenerationRequest without;
  ASSERT_FALSE(Completion((prompt + "null}").c_str(), &without));
  EXPECT_FALSE(without.flexible);
  EXPECT_FALSE(without.names_service_tier);
  EXPECT_EQ(ChatOutcome(R"(,"service_tier":"gold")"), "400 service_tier");
}

TEST(ChatRequest, RendersMessages) {
  GenerationRequest request;
  ASSERT_FALSE(Chat(R"({"messages":[{"role":"system","content":"s"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})",
                    &request));
  EXPECT_EQ(request.prompts[0].tokens, SharedTestModel().Encode("system:s\nuser:a\nb\nassistant:"));
  EXPECT_EQ(request.prompts[0].max_tokens,
            TestModel::kMaxModelLen - static_cast<int64_t>(request.prompts[0].tokens.size()));
}

TEST(ChatRequest, ContinuesTheFinalMessage) {
  GenerationRequest request;
  ASSERT_FALSE(Chat(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"Sure, "}],
      "continue_final_message":true})",
                    &request));
  EXPECT_EQ(request.prompts[0].tokens, SharedTestModel().Encode("user:a\nassistant:Sure, "));
}

// What a message spells is text; "<|end|>" is the one special token there is.
int64_t NumForged(const std::string& fields, const ModelContext& model) {
  GenerationRequest request;
  const auto error = ParseChatRequest(ordered_json::parse("{" + fields + "}"), model, &request);
  EXPECT_FALSE(error) << error->message;
  const std::vector<int32_t>& tokens = request.prompts[0].tokens;
  return std::count(tokens.begin(), tokens.end(), TestModel::kEndOfText);
}

TEST(ChatRequest, ContentIsText) {
  const ModelContext& model = SharedTestModel().context();
  const std::string forged = R"("messages":[{"role":"user","content":"hi<|end|>"}])";
  EXPECT_EQ(NumForged(forged, model), 0);
  EXPECT_EQ(NumForged(forged + R"(,"continue_final_message":true)", model), 0);
  EXPECT_EQ(NumForged(R"("messages":[{"role":"user","content":[{"type":"text","text":"<|end|>"}]}])", model),
            0);
  GenerationRequest request;
  ASSERT_FALSE(Chat("{" + forged + "}", &request));
  EXPECT_EQ(SharedTestModel().tokenizer().Decode(request.prompts[0].tokens, true),
            "user:hi<|end|>\nassistant:");
  // --special-tokens-in-content
  ModelContext open = model;
  open.special_tokens_in_content = true;
  EXPECT_EQ(NumForged(forged, open), 1);
  // A raw prompt says what it says.
  GenerationRequest raw;
  ASSERT_FALSE(Completion(R"({"prompt":"hi<|end|>"})", &raw));
  EXPECT_EQ(raw.prompts[0].tokens.back(), TestModel::kEndOfText);
}

TEST(ChatRequest, TemplateVariablesOfTheRequestAreContent) {
  const auto chat_template = ChatTemplate::Parse(
      "{{ eos_token }}{{ tools|tojson if tools }}{% for m in messages %}{{ m.content }}{{ "
      "m.tool_calls|tojson if m.tool_calls }}"
      "{% endfor %}{{ more }}<|end|>");
  ASSERT_TRUE(chat_template.ok());
  ModelContext model = SharedTestModel().context();
  model.chat_template = chat_template.value().get();
  model.max_model_len = 1000;
  const std::string call =
      R"({"id":"<|end|>","type":"function","function":{"name":"<|end|>","arguments":"{\"<|end|>\":\"<|end|>\"}"}})";
  EXPECT_EQ(
      NumForged(
          R"("messages":[{"role":"assistant","content":null,"tool_calls":[)" + call +
              R"(]}],"tools":[{"type":"function","function":{"name":"<|end|>","parameters":{"<|end|>":1}}}],)"
              R"("chat_template_kwargs":{"more":"<|end|>","eos_token":"<|end|>"})",
          model),
      1);
}

TEST(ChatRequest, ErrorsNameTheField) {
  EXPECT_EQ(ChatOutcome(R"(,"top_logprobs":2)"), "400 top_logprobs");
  EXPECT_EQ(ChatOutcome(R"(,"logprobs":true,"top_logprobs":21)"), "400 top_logprobs");
  EXPECT_EQ(ChatOutcome(R"(,"logprobs":3)"), "400 logprobs");
  EXPECT_EQ(ChatOutcome(R"(,"max_completion_tokens":0)"), "400 max_completion_tokens");
  EXPECT_EQ(ChatOutcome(R"(,"max_completion_tokens":100)"), "400 max_completion_tokens");
  EXPECT_EQ(ChatOutcome(R"(,"tools":{})"), "400 tools");
  EXPECT_EQ(ChatOutcome(R"(,"tools":[1])"), "400 tools[0]");
  EXPECT_EQ(ChatOutcome(R"(,"tool_choice":"required")"), "400 tool_choice");
  EXPECT_EQ(ChatOutcome(R"(,"chat_template_kwargs":1)"), "400 chat_template_kwargs");
  EXPECT_EQ(ChatOutcome(R"(,"add_generation_prompt":true,"continue_final_message":true)"),
            "400 continue_final_message");
  EXPECT_EQ(MessagesOutcome("[]"), "messages");
  EXPECT_EQ(MessagesOutcome("\"hi\""), "messages");
  EXPECT_EQ(MessagesOutcome("[1]"), "messages[0]");
  EXPECT_EQ(MessagesOutcome(R"([{"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(MessagesOutcome(R"([{"role":"alien","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(MessagesOutcome(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(MessagesOutcome(R"([{"role":"user","content":5}])"), "messages[0].content");
  EXPECT_EQ(MessagesOutcome(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"),
            "messages[0].content[0].type");
  EXPECT_EQ(MessagesOutcome(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0].text");
}

std::vector<int32_t> PromptOf(const std::string& fields) {
  GenerationRequest request;
  const auto error = Completion((R"({"prompt":"hello")" + fields + "}").c_str(), &request);
  EXPECT_FALSE(error) << error->message;
  return request.prompts.at(0).tokens;
}

TEST(GenerationRequest, PromptsAreCutToWhatIsWanted) {
  const std::vector<int32_t> whole = PromptOf("");
  const std::vector<int32_t> bare = PromptOf(R"(,"add_special_tokens":false)");
  const size_t num_added = whole.size() - bare.size();
  ASSERT_EQ(bare.size(), 5U) << "a token for each byte";
  EXPECT_EQ(PromptOf(R"(,"truncate_prompt_tokens":1000)"), whole);
  EXPECT_EQ(PromptOf(R"(,"add_special_tokens":false,"truncate_prompt_tokens":2)"),
            (std::vector<int32_t>{'l', 'o'}));
  EXPECT_EQ(PromptOf(R"(,"add_special_tokens":false,"truncate_prompt_tokens":2,"truncation_side":"right")"),
            (std::vector<int32_t>{'h', 'e'}));
  std::vector<int32_t> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(num_added));
  cut.push_back('o');
  EXPECT_EQ(PromptOf(R"(,"truncate_prompt_tokens":)" + std::to_string(num_added + 1)), cut)
      << "what the tokenizer adds stays";
  EXPECT_EQ(CompletionOutcome(R"(,"truncate_prompt_tokens":0)"), "400 truncate_prompt_tokens");
  EXPECT_EQ(CompletionOutcome(R"(,"truncate_prompt_tokens":-2)"), "400 truncate_prompt_tokens");
  EXPECT_EQ(CompletionOutcome(R"(,"truncation_side":"middle")"), "400 truncation_side");

  GenerationRequest request;
  const int64_t max_model_len = SharedTestModel().context().max_model_len;
  const std::string text(static_cast<size_t>(max_model_len) + 50, 'a');
  const std::string body = R"({"max_tokens":3,"prompt":")" + text + R"(")";
  EXPECT_EQ(Completion((body + "}").c_str(), &request)->code, "context_length_exceeded");
  request = {};
  ASSERT_FALSE(Completion((body + R"(,"truncate_prompt_tokens":-1,"echo":true})").c_str(), &request));
  EXPECT_EQ(std::ssize(request.prompts[0].tokens), max_model_len - 3);
  EXPECT_EQ(request.prompts[0].max_tokens, 3);
  EXPECT_LT(request.prompts[0].text.size(), text.size()) << "what is echoed is what is left";
}

TEST(GenerationRequest, ReadsWhatBoundsTheTokensDrawn) {
  GenerationRequest request;
  ASSERT_FALSE(
      Completion(R"({"prompt":"p","bad_words":["ab"," c","c"],"allowed_token_ids":[97,98]})", &request));
  EXPECT_EQ(request.sampling.allowed_token_ids, (std::vector<int32_t>{97, 98}));
  EXPECT_EQ(request.sampling.bad_words,
            (std::vector<std::vector<int32_t>>{{'a', 'b'}, {' ', 'a', 'b'}, {'c'}, {' ', 'c'}}));
  EXPECT_EQ(CompletionOutcome(R"(,"allowed_token_ids":[])"), "400 allowed_token_ids");
  EXPECT_EQ(CompletionOutcome(R"(,"allowed_token_ids":[100000])"), "400 allowed_token_ids");
  EXPECT_EQ(CompletionOutcome(R"(,"bad_words":[""])"), "400 bad_words");
  EXPECT_EQ(CompletionOutcome(R"(,"bad_words":["  "])"), "400 bad_words");
  EXPECT_EQ(CompletionOutcome(R"(,"bad_words":"ab")"), "400 bad_words");
  EXPECT_EQ(CompletionOutcome(R"(,"bad_words":[1])"), "400 bad_words");
}

TEST(GenerationRequest, LogprobsMayBeBooleansAndOfThePrompt) {
  GenerationRequest request;
  ASSERT_FALSE(Completion(R"({"prompt":"p","logprobs":true})", &request));
  EXPECT_EQ(request.num_logprobs, 1);
  request = {};
  ASSERT_FALSE(Completion(R"({"prompt":"p","logprobs":false})", &request));
  EXPECT_EQ(request.num_logprobs, -1);
  request = {};
  ASSERT_FALSE(
      Completion(R"({"prompt":"p","logprobs":2,"echo":true,"prompt_logprobs":5,"max_tokens":0})", &request));
  EXPECT_EQ(request.num_logprobs, 2);
  EXPECT_EQ(request.num_prompt_logprobs, 5);
  EXPECT_EQ(request.sampling.num_prompt_top_logprobs, 5);
  EXPECT_EQ(CompletionOutcome(R"(,"prompt_logprobs":3,"stream":true)"), "400 prompt_logprobs");
  EXPECT_EQ(CompletionOutcome(R"(,"prompt_logprobs":21)"), "400 prompt_logprobs");
  EXPECT_EQ(ChatOutcome(R"(,"logprobs":false,"top_logprobs":0)"), "ok");
  EXPECT_EQ(ChatOutcome(R"(,"logprobs":false,"top_logprobs":1)"), "400 top_logprobs");
}

TEST(GenerationRequest, NamesOfTheSameThing) {
  GenerationRequest request;
  ASSERT_FALSE(Chat(
      R"({"messages":[{"role":"user","content":"hi"}],"repeat_penalty":1.25,"request_id":"a-1"})", &request));
  EXPECT_EQ(request.sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(request.request_id, "a-1");
  EXPECT_EQ(CompletionOutcome(R"(,"request_id":"a\"b")"), "400 request_id");
  EXPECT_EQ(CompletionOutcome(R"(,"request_id":"")"), "400 request_id");
}

TEST(GenerationRequest, ChatsEchoTheAssistantsLastMessageOnly) {
  GenerationRequest request;
  const std::string user = R"({"role":"user","content":"hi"})";
  ASSERT_FALSE(Chat(R"({"echo":true,"continue_final_message":true,"messages":[)" + user +
                        R"(,{"role":"assistant","content":"Well, "}]})",
                    &request));
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.prompts[0].text, "Well, ");
  request = {};
  ASSERT_FALSE(Chat(R"({"echo":true,"messages":[)" + user + "]}", &request));
  EXPECT_EQ(request.prompts[0].text, "");
}

// What a template that is given as text makes of a chat.
std::string Rendered(const std::string& chat_template, const std::string& fields) {
  auto parsed = ChatTemplate::Parse(chat_template);
  EXPECT_TRUE(parsed.ok());
  ModelContext context = SharedTestModel().context();
  context.chat_template = parsed->get();
  context.tool_format = ToolFormat::kHermes;
  RenderedChat chat;
  const auto error = RenderChat(
      ordered_json::parse(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}"), context, &chat);
  EXPECT_FALSE(error) << error->message;
  return chat.text;
}

TEST(GenerationRequest, ToolsOfAVendorsCloudAreDropped) {
  const std::string types = "{% for tool in tools or [] %}{{ tool.type }};{% endfor %}";
  EXPECT_EQ(
      Rendered(types, R"(,"tools":[{"type":"web_search_preview_2025_03_11"},{"type":"mcp","server_url":"u"},
                               {"type":"function","function":{"name":"f"}}])"),
      "function;");
  EXPECT_EQ(Rendered("{{ tools is none }}", R"(,"tools":[{"type":"web_search"}])"), "True");
}

TEST(GenerationRequest, TemplatesGetWhatHasAFieldOfItsOwn) {
  const std::string variables = "{{ reasoning_effort }} {{ enable_thinking }} {{ documents[0].text }}";
  EXPECT_EQ(
      Rendered(variables, R"(,"reasoning_effort":"high","enable_thinking":true,"documents":[{"text":"d"}])"),
      "high True d");
  EXPECT_EQ(Rendered(variables, R"(,"reasoning_effort":"none","documents":[{"text":"d"}])"), "none False d");
  EXPECT_EQ(Rendered(variables, R"(,"reasoning_effort":"low","documents":[{"text":"d"}],)"
                                R"("chat_template_kwargs":{"reasoning_effort":"much","enable_thinking":1})"),
            "much 1 d");
}

TEST(GenerationRequest, ChatsWithoutALimitHaveTheServers) {
  ModelContext context = SharedTestModel().context();
  const auto max_tokens = [&](const std::string& fields) {
    GenerationRequest request;
    const auto error = ParseChatRequest(
        ordered_json::parse(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}"), context,
        &request);
    EXPECT_FALSE(error) << error->message;
    return request.prompts.at(0).max_tokens;
  };
  const int64_t rest = max_tokens("");
  EXPECT_GT(rest, 8);
  context.default_max_tokens = 7;
  EXPECT_EQ(max_tokens(""), 7);
  EXPECT_EQ(max_tokens(R"(,"max_tokens":8)"), 8) << "who names one has that";
  context.default_max_tokens = 1000;
  EXPECT_EQ(max_tokens(""), rest) << "what fits";
}

TEST(GenerationRequest, FieldsAreJudgedFirst) {
  EXPECT_EQ(ChatOutcome(R"(,"temprature":1)"), "400 temprature");
  EXPECT_EQ(CompletionOutcome(R"(,"guided_whitespace_pattern":"x")"), "400 guided_whitespace_pattern");
  EXPECT_EQ(ChatOutcome(R"(,"reasoning_effort":"much")"), "400 reasoning_effort");
  EXPECT_EQ(ChatOutcome(R"(,"documents":["x"])"), "400 documents");
  EXPECT_EQ(ChatOutcome(R"(,"documents":[{"text":"x"}],"reasoning_effort":"none","enable_thinking":true)"),
            "ok");
  GenerationRequest request;
  ASSERT_FALSE(Chat(R"({"messages":[{"role":"user","content":"hi"}],"frobnicate":1})", &request));
  EXPECT_EQ(request.ignored_fields, std::vector<std::string>{"frobnicate"});
}

constexpr const char* kTwoTools =
    R"(,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}])";

TEST(GenerationRequest, ToolsSayHowTheAnswerIsRead) {
  GenerationRequest request;
  ModelContext roomy = SharedTestModel().context();
  roomy.max_model_len = 10'000;
  const auto parse = [&](const std::string& body) {
    request = {};
    return ParseChatRequest(ordered_json::parse(body), roomy, &request);
  };
  const std::string hi = R"({"messages":[{"role":"user","content":"hi"}])";
  ASSERT_FALSE(parse(hi + kTwoTools + "}"));
  EXPECT_EQ(request.parser.format, ToolFormat::kGeneric);
  EXPECT_EQ(request.parser.tools, (std::vector<std::string>{"f", "g"}));
  EXPECT_FALSE(request.grammar_spec.has_value());
  EXPECT_FALSE(request.one_call);
  ASSERT_FALSE(parse(hi + kTwoTools + R"(,"tool_choice":"required","parallel_tool_calls":false})"));
  ASSERT_TRUE(request.grammar_spec.has_value());
  EXPECT_EQ(request.grammar_spec->spec.kind, GrammarSpec::Kind::kStructuralTag);
  EXPECT_NE(request.grammar_spec->spec.text.find("<tool_call>"), std::string::npos);
  EXPECT_TRUE(request.one_call);
  ASSERT_FALSE(parse(hi + kTwoTools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}}})"));
  EXPECT_EQ(request.parser.tools, std::vector<std::string>{"g"});
  ASSERT_FALSE(parse(hi + kTwoTools + R"(,"tool_choice":"none"})"));
  EXPECT_EQ(request.parser.format, ToolFormat::kNone);
}

TEST(GenerationRequest, TheStyleOfAnAnswerGoesWithItIntoATag) {
  GenerationRequest request;
  ModelContext context = SharedTestModel().context();
  context.max_model_len = 10'000;
  const std::string hi = R"({"messages":[{"role":"user","content":"hi"}])";
  const std::string styled =
      R"(,"structured_outputs":{"json":{"type":"object"},"disable_any_whitespace":true,"disable_additional_properties":false})";
  for (const bool reasons : {false, true}) {
    context.reasons = reasons;
    for (const std::string& tools : {std::string(kTwoTools), std::string()}) {
      request = {};
      std::string body = hi;
      body.append(styled).append(tools).append("}");
      ASSERT_FALSE(ParseChatRequest(ordered_json::parse(body), context, &request));
      ASSERT_TRUE(request.grammar_spec.has_value());
      const GrammarSpec& spec = request.grammar_spec->spec;
      const bool is_alone = tools.empty() && !reasons;
      EXPECT_EQ(spec.kind, is_alone ? GrammarSpec::Kind::kJsonSchema : GrammarSpec::Kind::kStructuralTag);
      EXPECT_FALSE(spec.any_whitespace) << reasons << tools;
      EXPECT_FALSE(spec.strict) << reasons << tools;
    }
  }
}

TEST(GenerationRequest, ATagOfTheOlderFormIsAPartOfOneWithTools) {
  GenerationRequest request;
  ModelContext context = SharedTestModel().context();
  context.max_model_len = 10'000;
  ASSERT_FALSE(ParseChatRequest(
      ordered_json::parse(
          R"({"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"structural_tag","structures":[
      {"begin":"<a>","schema":{},"end":"</a>"}],"triggers":["<a"]})" +
          std::string(kTwoTools) + "}"),
      context, &request));
  ASSERT_TRUE(request.grammar_spec.has_value());
  EXPECT_NE(request.grammar_spec->spec.text.find(R"("structures":[{"begin":"<a>")"), std::string::npos);
}

TEST(GenerationRequest, WhatIsWrongWithToolsIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"tools":{})", "tools"},
      {R"(,"tools":[1])", "tools[0]"},
      {R"(,"tools":[{"type":"custom","custom":{"name":"c"}}])", "tools[0].type"},
      {R"(,"tools":[{"type":"function"}])", "tools[0].function"},
      {R"(,"tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name"},
      {R"(,"tools":[{"type":"function","function":{"name":"f","parameters":1}}])",
       "tools[0].function.parameters"},
      {R"(,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])",
       "tools[1].function.name"},
      {R"(,"tool_choice":"required")", "tool_choice"},
      {R"(,"tool_choice":"sometimes")", "tool_choice"},
      {R"(,"tool_choice":{"type":"function","function":{"name":"h"}})", "tool_choice"},
      {R"(,"parallel_tool_calls":1)", "parallel_tool_calls"},
  };
  for (const auto& [fields, param] : cases)
    EXPECT_EQ(ChatOutcome(fields), "400 " + std::string(param)) << fields;
}

}  // namespace
}  // namespace tandem
