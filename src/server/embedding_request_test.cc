#include "server/embedding_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/model_testing.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

ModelContext EmbeddingContext() {
  ModelContext model = SharedTestModel().context();
  model.hidden_size = 4;
  return model;
}

EmbeddingRequest Parsed(const std::string& body) {
  EmbeddingRequest request;
  const auto error = ParseEmbeddingRequest(ordered_json::parse(body), EmbeddingContext(), &request);
  EXPECT_FALSE(error) << error->message;
  return request;
}

// "status param".
std::string Refused(const std::string& body) {
  EmbeddingRequest request;
  const auto error = ParseEmbeddingRequest(ordered_json::parse(body), EmbeddingContext(), &request);
  return error ? std::to_string(error->status) + " " + error->param : "taken";
}

TEST(EmbeddingRequestTest, InputsOfEveryKind) {
  EXPECT_THAT(Parsed(R"({"input": [5, 6]})").inputs, ElementsAre(ElementsAre(5, 6)));
  EXPECT_THAT(Parsed(R"({"input": [[5], [6, 7]]})").inputs, ElementsAre(ElementsAre(5), ElementsAre(6, 7)));
  const auto ab = Parsed(R"({"input": "ab", "add_special_tokens": false})").inputs;
  EXPECT_THAT(ab, ElementsAre(ElementsAre('a', 'b')));
  EXPECT_EQ(Parsed(R"({"input": ["ab", "c"], "model": "alias"})").inputs.size(), 2U);
  EXPECT_EQ(Parsed(R"({"input": [[5], [6, 7]]})").num_tokens(), 3);
  const EmbeddingRequest usual = Parsed(R"({"input": "a", "user": "u", "frob": 1})");
  EXPECT_EQ(usual.dimensions, 4);
  EXPECT_TRUE(usual.normalize);
  EXPECT_FALSE(usual.base64);
  EXPECT_THAT(usual.ignored_fields, ElementsAre("frob"));
}

TEST(EmbeddingRequestTest, WrongOnesNameTheField) {
  for (const char* input : {"null", "\"\"", "[]", "[\"\"]", "[\"a\", [1]]", "[\"a\", \"\"]", "[[]]", "7",
                            "{}", "[1.5]", "[300]", "[-1]", "[{}]", "[[1], 2]", "[true]"}) {
    EXPECT_EQ(Refused(std::string("{\"input\": ") + input + "}"), "400 input") << input;
  }
  EXPECT_EQ(Refused("{}"), "400 input");
  EXPECT_EQ(Refused("[]"), "400 ");
  EXPECT_EQ(Refused(R"({"input": "a", "model": "other"})"), "404 model");
  EXPECT_EQ(Refused(R"({"input": "a", "encoding_format": "hex"})"), "400 encoding_format");
  EXPECT_EQ(Refused(R"({"input": "a", "dimensions": 0})"), "400 dimensions");
  EXPECT_EQ(Refused(R"({"input": "a", "dimensions": 5})"), "400 dimensions");
  EXPECT_EQ(Refused(R"({"input": "a", "normalize": 1})"), "400 normalize");
  EXPECT_EQ(Refused(R"({"input": "a", "truncate_prompt_tokens": 0})"), "400 truncate_prompt_tokens");
  EXPECT_EQ(Refused(R"({"messages": []})"), "400 messages");
  EXPECT_EQ(Refused(R"({"inptu": "a"})"), "400 inptu");
  const ordered_json many = {{"input", std::vector<std::string>(2049, "a")}};
  EXPECT_EQ(Refused(many.dump()), "400 input");
}

TEST(EmbeddingRequestTest, ALongInputIsRefusedOrCut) {
  const int64_t context = EmbeddingContext().max_model_len;
  const std::vector<int32_t> tokens(static_cast<size_t>(context + 1), 'a');
  ordered_json body = {{"input", ordered_json::array({tokens})}};
  EmbeddingRequest request;
  const auto error = ParseEmbeddingRequest(body, EmbeddingContext(), &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "context_length_exceeded");
  EXPECT_EQ(error->param, "input");
  EXPECT_THAT(error->message, HasSubstr(std::to_string(context)));
  body["truncate_prompt_tokens"] = -1;
  EXPECT_EQ(Parsed(body.dump()).inputs[0].size(), static_cast<size_t>(context));
  const auto cut = [](const std::string& fields) {
    return Parsed(R"({"input": "abcdef", "add_special_tokens": false, "truncate_prompt_tokens": 2)" + fields +
                  "}")
        .inputs[0];
  };
  EXPECT_THAT(cut(""), ElementsAre('a', 'b'));
  EXPECT_THAT(cut(R"(, "truncation_side": "left")"), ElementsAre('e', 'f'));
}

TEST(EmbeddingRequestTest, DimensionsAreCutBeforeNormalizing) {
  std::vector<float> values = {3, 4, 100, 7};
  Shorten({.dimensions = 2}, &values);
  EXPECT_THAT(values, ElementsAre(0.6F, 0.8F));
  values = {3, 4, 100, 7};
  Shorten({.dimensions = 3, .normalize = false}, &values);
  EXPECT_THAT(values, ElementsAre(3, 4, 100));
  values = {0, 0};
  Shorten({.dimensions = 2}, &values);
  EXPECT_THAT(values, ElementsAre(0, 0));
}

TEST(EmbeddingRequestTest, Bodies) {
  const EmbeddingRequest request = {.inputs = {{1, 2}, {3}}, .dimensions = 2};
  EXPECT_EQ(EmbeddingBody(request, "m\"", {{0.1F, -2}, {1e-8F, 3}}),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2]},)"
            R"({"object":"embedding","index":1,"embedding":[1e-08,3]}],"model":"m\"",)"
            R"("usage":{"prompt_tokens":3,"total_tokens":3}})");
  const auto base64 = [](const std::vector<float>& values) {
    const EmbeddingRequest wanted = {.inputs = {{1}}, .base64 = true};
    return ordered_json::parse(EmbeddingBody(wanted, "m", {values}))["data"][0]["embedding"]
        .get<std::string>();
  };
  EXPECT_EQ(base64({1.0F}), "AACAPw==");
  EXPECT_EQ(base64({1.0F, -2.0F}), "AACAPwAAAMA=");
  EXPECT_EQ(base64({1.0F, -2.0F, 0.5F}), "AACAPwAAAMAAAAA/");
}

}  // namespace
}  // namespace tandem
