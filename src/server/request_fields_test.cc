#include "server/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// "code param" of the error, or the ignored fields.
std::string Judged(const std::string& body, RequestRoute route = RequestRoute::kChat, bool reject = false) {
  std::vector<std::string> ignored;
  const auto error = JudgeFields(ordered_json::parse(body), route, reject, &ignored);
  return error ? error->code + " " + error->param : IgnoredFieldsHeader(ignored);
}

TEST(RequestFieldTable, IsInOrderWithARowForEachRoute) {
  for (const RequestRoute route : {RequestRoute::kCompletions, RequestRoute::kChat, RequestRoute::kResponses,
                                   RequestRoute::kMessages, RequestRoute::kEmbeddings}) {
    const auto table = RequestFieldTable(route);
    for (size_t i = 0; i < table.size(); ++i) {
      const RequestField& field = table[i];
      EXPECT_FALSE(field.note.empty()) << field.name;
      EXPECT_EQ(FindRequestField(route, field.name) == &field, field.IsFor(route)) << field.name;
      EXPECT_TRUE(ordered_json::accept("[" + std::string(field.harmless) + "]")) << field.name;
      EXPECT_TRUE(i == 0 || table[i - 1].name <= field.name) << field.name;
    }
  }
}

TEST(RequestFields, OfResponsesAreTheirOwn) {
  const auto judged = [](const char* body) { return Judged(body, RequestRoute::kResponses); };
  EXPECT_EQ(judged(R"({"input":"x","text":{"format":{"type":"text"}},"reasoning":{"effort":"low"}})"), "");
  EXPECT_EQ(judged(R"({"max_tokens":3})"), "unsupported_field max_tokens");
  EXPECT_EQ(judged(R"({"background":true})"), "unsupported_field background");
  EXPECT_EQ(judged(R"({"background":false,"conversation":null})"), "");
  EXPECT_EQ(judged(R"({"reasoning":{"efort":"low"}})"), "unknown_field reasoning.efort");
  EXPECT_EQ(judged(R"({"text":{"new_thing":1}})"), "text.new_thing");
}

TEST(RequestFields, AreTakenOrRefusedByTheTable) {
  EXPECT_EQ(Judged(R"({"messages":[],"temperature":1,"user":"u","store":true})"), "");
  EXPECT_EQ(Judged(R"({"guided_whitespace_pattern":"x"})"), "unsupported_field guided_whitespace_pattern");
  EXPECT_EQ(Judged(R"({"guided_json":null,"use_beam_search":false,"length_penalty":1})"), "");
  EXPECT_EQ(Judged(R"({"use_beam_search":true})"), "unsupported_field use_beam_search");
  EXPECT_EQ(Judged(R"({"response_format":{"type":"text"}})"), "");
  EXPECT_EQ(Judged(R"({"modalities":["audio"]})"), "unsupported_field modalities");
  EXPECT_EQ(Judged(R"({"response_format":{"type":"text","json_schema":null}})"), "");
  EXPECT_EQ(Judged(R"({"prompt":"x"})"), "unsupported_field prompt");
  EXPECT_EQ(Judged(R"({"prompt":"x"})", RequestRoute::kCompletions), "");
}

TEST(RequestFields, NearMissesNameTheField) {
  std::vector<std::string> ignored;
  const auto error =
      JudgeFields(ordered_json::parse(R"({"temprature":0.5})"), RequestRoute::kChat, false, &ignored);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, "temprature");
  EXPECT_THAT(error->message, HasSubstr("did you mean temperature?"));
  for (const auto& [name, like] :
       std::vector<std::pair<std::string, std::string>>{{"temprature", "temperature"},
                                                        {"TEMPERATURE", "temperature"},
                                                        {"tempertaure", "temperature"},
                                                        {"max_token", "max_tokens"},
                                                        {"maxTokens", "max_tokens"},
                                                        {"sed", "seed"},
                                                        {"stpo", "stop"},
                                                        {"top-p", "top_p"},
                                                        {"msesages", "messages"},
                                                        {"guided_jsn", "guided_json"},
                                                        {"strem", "stream"}}) {
    EXPECT_EQ(KnownNameLike(name, RequestRoute::kChat), like) << name;
  }
  for (const char* name : {"", "x", "se", "tps", "frobnicate", "my_own_field", "temp"}) {
    EXPECT_EQ(KnownNameLike(name, RequestRoute::kChat), "") << name;
  }
  EXPECT_EQ(KnownNameLike(std::string(100'000, 'a'), RequestRoute::kChat), "");
  EXPECT_EQ(Judged(R"({"stream_options":{"include_usag":true}})"),
            "unknown_field stream_options.include_usag");
}

TEST(RequestFields, UnknownOnesAreNamedOrRejected) {
  EXPECT_EQ(Judged(R"({"frobnicate":1,"a, b\n":2,"stream_options":{"frobnicate":3}})"),
            "frobnicate, a%2C%20b%0A, stream_options.frobnicate");
  EXPECT_EQ(Judged(R"({"stream_options":{"x":1,"options":2}})"), "stream_options.x, stream_options.options");
  EXPECT_EQ(Judged(R"({"stream_options.include_usage":true})"), "stream_options.include_usage");
  EXPECT_EQ(Judged(R"({"frobnicate":1})", RequestRoute::kChat, true), "unknown_field frobnicate");
  ordered_json many = ordered_json::object();
  for (int i = 0; i < 64; ++i) many["frobnicate" + std::string(100, 'x') + std::to_string(i)] = i;
  std::vector<std::string> ignored;
  EXPECT_FALSE(JudgeFields(many, RequestRoute::kChat, false, &ignored));
  EXPECT_LE(IgnoredFieldsHeader(ignored).size(), 1100U);
  many["one_more_of_them"] = 1;
  ignored.clear();
  EXPECT_TRUE(JudgeFields(many, RequestRoute::kChat, false, &ignored));
}

// The page has the table between its two marks. TANDEM_UPDATE_DOCS=1 writes it.
// Makes the page's table what it should be if TANDEM_UPDATE_DOCS is set, else expects that it is.
void ExpectPage(const std::string& name, std::span<const RequestRoute> tables) {
  const std::string path = std::string(TANDEM_SOURCE_DIR) + "/docs/" + name;
  std::ifstream file(path);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const std::string begin = "| fields |";
  const size_t at = page.find(begin);
  ASSERT_NE(at, std::string::npos);
  const size_t end = page.find("\n\n", at) == std::string::npos ? page.size() : page.find("\n\n", at) + 1;
  const std::string table = RequestFieldsMarkdown(tables);
  if (std::getenv("TANDEM_UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << page.substr(0, at) + table + page.substr(end);
    return;
  }
  EXPECT_TRUE(page.substr(at, end - at) == table)
      << "docs/" << name << " differs: run server_test with TANDEM_UPDATE_DOCS=1";
}

TEST(RequestFields, ThePageHasTheTable) {
  ExpectPage("request_fields.md", std::array{RequestRoute::kChat});
  ExpectPage("embeddings.md", std::array{RequestRoute::kEmbeddings});
  ExpectPage("agent_request_fields.md", std::array{RequestRoute::kResponses, RequestRoute::kMessages});
}

}  // namespace
}  // namespace tandem
