#include "text/chat_template.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadFixture(const std::string& name) {
  std::ifstream file(std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/chat_templates/" + name,
                     std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<std::string> Text(Result<RenderedChat> rendered) {
  if (!rendered.ok()) return rendered.error();
  return std::move(rendered).value().text;
}

Result<std::string> Render(const std::string& source, const Json& variables) {
  auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.error();
  return Text(parsed.value()->Render(variables, Json::object()));
}

std::string ErrorOf(const std::string& source, const Json& variables = Json::object()) {
  const Result<std::string> result = Render(source, variables);
  return result.ok() ? "no error, but: " + result.value() : result.error().message;
}

// Expects what jinja2 gave: the same bytes, or an error, with raise_exception's message if that was it.
void Check(const Result<std::string>& result, const Json& expected, const std::string& what) {
  if (expected.contains("expected")) {
    ASSERT_TRUE(result.ok()) << what << "\n" << result.error().message;
    EXPECT_EQ(result.value(), expected["expected"].get<std::string>()) << what;
    return;
  }
  ASSERT_FALSE(result.ok()) << what << "\nrendered: " << result.value();
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << what;
  const auto message = expected["error"].get<std::string>();
  if (!message.empty()) {
    EXPECT_EQ(result.error().message, message) << what;
  }
}

Json Variables(const Json& fixture, const Json& test_case) {
  Json variables = test_case["variables"];
  variables["messages"] = fixture["conversations"][test_case["conversation"].get<std::string>()];
  if (test_case["tools"].get<bool>()) variables["tools"] = fixture["tools"];
  return variables;
}

const std::vector<std::string>& Families() {
  static const auto* const families = new std::vector<std::string>{
      "llama2",       "llama3", "llama3_1", "smollm2", "tinyllama", "mistral_v0_1",
      "mistral_v0_3", "qwen2",  "qwen2_5",  "qwen3",   "parts"};
  return *families;
}

class ChatTemplateFamily : public testing::TestWithParam<std::string> {};

TEST_P(ChatTemplateFamily, RendersAsJinja2) {
  const auto parsed = ChatTemplate::Parse(ReadFixture(GetParam() + ".jinja"));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const Json fixture = Json::parse(ReadFixture("conversations.json"));
  const Json cases = Json::parse(ReadFixture(GetParam() + ".json"))["cases"];
  ASSERT_GT(cases.size(), 100U);
  for (const Json& test_case : cases) {
    Check(Text(parsed.value()->Render(Variables(fixture, test_case), Json::object())), test_case,
          fmt::format("{} tools={} {}", test_case["conversation"].get<std::string>(),
                      test_case["tools"].get<bool>(), test_case["variables"].dump()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChatTemplateFamily, testing::ValuesIn(Families()),
                         [](const auto& family) { return family.param; });

TEST(ChatTemplate, SnippetsRenderAsJinja2) {
  const Json cases = Json::parse(ReadFixture("snippets.json"))["cases"];
  ASSERT_GT(cases.size(), 900U);
  for (const Json& test_case : cases) {
    const auto source = test_case["template"].get<std::string>();
    Check(Render(source, test_case["variables"]), test_case, source);
  }
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(ErrorOf("a\n\n{{ x.y }}"), "chat template, line 3: 'x' is undefined");
  EXPECT_EQ(ErrorOf("{% set x = {'a': 1} %}\n{{ x.b.c }}"),
            "chat template, line 2: 'dict object' has no attribute 'b'");
  EXPECT_EQ(ErrorOf("\n{% if true %}\n x"),
            "chat template, line 3: unexpected end of template, 'endif' is missing");
  EXPECT_EQ(ErrorOf("x\n{{ 'abc"), "chat template, line 2: string without its closing quote");
  EXPECT_EQ(ErrorOf("{# x"), "chat template, line 1: Missing end of comment tag");
  EXPECT_EQ(ErrorOf("{{ (1] }}"), "chat template, line 1: unexpected ']', expected ')'");
  EXPECT_EQ(ErrorOf("\n{{ 1|foo }}"), "chat template, line 2: No filter named 'foo'.");
  EXPECT_EQ(ErrorOf("{{ 1 +\n'a' }}"),
            "chat template, line 1: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(ErrorOf("{{ raise_exception('as it is') }}"), "as it is");
}

TEST(ChatTemplate, VariablesMustBeAnObject) {
  EXPECT_EQ(ErrorOf("x", Json::array()), "chat template: the variables must be an object");
}

TEST(ChatTemplate, StrftimeNowGivesTheDate) {
  const auto result = Render("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}", Json::object());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().size(), 26U);
  EXPECT_EQ(result.value().substr(0, 2), "20");
}

TEST(ChatTemplate, InvalidUtf8PassesThrough) {
  const Json variables = {{"x", "a\xff\xc3z\xe2\x82"}};
  const auto result = Render("{{ x }}|{{ x|length }}|{{ x[1] }}|{{ x[::-1] }}|{{ x|trim }}", variables);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value(),
            "a\xff\xc3z\xe2\x82|6|\xff|\x82\xe2z\xc3\xff"
            "a|a\xff\xc3z\xe2\x82");
}

TEST(ChatTemplate, LargeUnsignedNumbersBecomeFloats) {
  const Json variables = {{"x", 18446744073709551615ULL}, {"y", 9223372036854775807LL}};
  const auto result = Render("{{ x }} {{ y }}", variables);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value(), "1.8446744073709552e+19 9223372036854775807");
}

TEST(ChatTemplate, IntegersPast64BitsAreErrors) {
  for (const std::string source :
       {"{{ 99999999999999999999 }}", "{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 4294967296 * 4294967296 }}", "{{ (-9223372036854775807 - 1) // -1 }}", "{{ 3 ** 41 }}"}) {
    EXPECT_NE(ErrorOf(source).find("out of the 64-bit range"), std::string::npos) << source;
  }
  EXPECT_EQ(
      Render("{{ (-9223372036854775807 - 1) % -1 }}{{ -(9223372036854775807) }}", Json::object()).value(),
      "0-9223372036854775807");
}

TEST(ChatTemplate, RendersFromSeveralThreads) {
  const auto parsed = ChatTemplate::Parse(ReadFixture("qwen3.jinja"));
  ASSERT_TRUE(parsed.ok());
  const Json fixture = Json::parse(ReadFixture("conversations.json"));
  const Json cases = Json::parse(ReadFixture("qwen3.json"))["cases"];
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const Json& test_case : cases) {
        Check(Text(parsed.value()->Render(Variables(fixture, test_case), Json::object())), test_case,
              "thread");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string Repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

// Templates that would take all memory, all time or all stack.
TEST(ChatTemplate, HostileTemplatesAreErrors) {
  // NOLINTBEGIN(bugprone-suspicious-missing-comma): long templates go over several lines
  const std::vector<std::string> sources = {
      "{{ 'a' * 1000000000 }}",
      "{{ [1] * 1000000000 }}",
      "{% set ns = namespace(x='abc') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace(x=[], y=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace(x=()) %}{% for i in range(99) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
      "{{ {ns.x: 1} }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x|tojson }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = ns.x|map('string') %}{% endfor "
      "%}",
      "{% set ns = namespace(x=none) %}{% for i in range(99999) %}{% set ns.x = namespace(y=ns.x) %}{% "
      "endfor %}",
      "{% for i in range(99999) %}{% macro m() %}{% endmacro %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro a() %}{% call a() %}{% endcall %}{% endmacro %}{{ a() }}",
      "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
      "{% for i in range(99999) %}{% for j in range(99999) %}abcdefgh{% endfor %}{% endfor %}",
      "{% set x = 'a' * 9999999 %}{% for i in range(99999) %}{% set y = x|upper %}{% endfor %}",
      "{% set x = 'a' * 9999999 %}{% for i in range(99999) %}{% set y = x|length %}{% endfor %}",
      "{{ 'aaaaaaaaaa'.replace('', 'b' * 9999999) }}",
      "{{ ('a' * 999999)|replace('a', 'b' * 999999) }}",
      "{{ ('x' * 9999).join(range(99999)|map('string')) }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ 'a'.center(999999999999) }}",
      "{{ 'a'.zfill(999999999999) }}",
      "{{ 'a\tb'.expandtabs(999999999999) }}",
      "{{ ('a\n' * 999999)|indent(99999999) }}",
      "{{ 9999999999 ** 9999999999 }}",
      "{{ range(0, 9223372036854775807) }}",
      "{{ range(-9223372036854775807, 9223372036854775807, 1) }}",
      "{{ range(5)|batch(999999999999, 'x')|list }}",
      "{{ range(5)|slice(999999999999)|list }}",
      "{{ [1]|tojson(indent=99999999999) ~ ('a' * 16777216) }}",
      Repeated("{% if true %}", 5000),
      Repeated("{{ (", 5000),
      "{{ " + Repeated("(", 100000),
      "{{ " + Repeated("[", 100000),
      "{{ " + Repeated("not ", 100000),
      "{{ " + Repeated("-", 100000) + "1 }}",
      "{{ 1" + Repeated("+1", 100000) + " }}",
      "{{ 1" + Repeated("|abs", 100000) + " }}",
      "{{ x" + Repeated(".x", 100000) + " }}",
      "{{ x" + Repeated("()", 100000) + " }}",
      "{{ " + Repeated("1 if 1 else ", 100000) + "1 }}",
      "{{ " + Repeated("1 is in ", 100000) + "1 }}",
      "{{ " + Repeated("{1:", 100000),
      "{% set " + Repeated("(", 100000),
      "{% for " + Repeated("(a,", 100000),
      std::string(size_t{5} << 20, 'x'),
  };
  // NOLINTEND(bugprone-suspicious-missing-comma)
  for (const std::string& source : sources) {
    EXPECT_FALSE(Render(source, Json::object()).ok()) << source.substr(0, 200);
  }
}

TEST(ChatTemplate, DeeplyNestedVariablesAreAnError) {
  // Never copied: a copy recurses as deep as the value goes.
  Json deep = 1;
  for (int i = 0; i < 5000; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  Json variables = Json::object();
  variables["x"] = std::move(deep);
  EXPECT_FALSE(Render("{{ x }}", variables).ok());
}

// Mutations of real templates: whatever comes of them, it is a text or an error.
TEST(ChatTemplate, MutatedTemplatesNeverCrash) {
  std::mt19937 random(20240607);
  const auto below = [&random](size_t bound) { return static_cast<size_t>(random() % bound); };
  std::vector<std::string> corpus;
  for (const std::string& family : Families()) corpus.push_back(ReadFixture(family + ".jinja"));
  const Json snippets = Json::parse(ReadFixture("snippets.json"));
  for (const Json& test_case : snippets["cases"]) {
    corpus.push_back(test_case["template"].get<std::string>());
  }
  const std::vector<std::string> pieces = {"{{",
                                           "}}",
                                           "{%",
                                           "%}",
                                           "{#",
                                           "#}",
                                           "-",
                                           "(",
                                           ")",
                                           "[",
                                           "]",
                                           "'",
                                           "\"",
                                           "|",
                                           ".",
                                           "\\",
                                           "\n",
                                           "loop",
                                           "messages",
                                           "[::-1]",
                                           "is",
                                           "not",
                                           "in",
                                           " if ",
                                           " else ",
                                           "endfor",
                                           "endif",
                                           "\xf0\x9f",
                                           "|list",
                                           "|map('upper')",
                                           "999999999999999999",
                                           "1e400",
                                           "namespace()",
                                           "*",
                                           "**",
                                           "//",
                                           "%",
                                           "~",
                                           ":",
                                           std::string("\0x", 2)};
  const Json fixture = Json::parse(ReadFixture("conversations.json"));
  std::vector<Json> variables;
  for (const auto& [name, messages] : fixture["conversations"].items()) {
    variables.push_back({{"messages", messages},
                         {"tools", fixture["tools"]},
                         {"add_generation_prompt", true},
                         {"bos_token", "<s>"},
                         {"eos_token", "</s>"},
                         {"d", {{"a", 1}}},
                         {"l", {3, 1, 2}},
                         {"s", "text"}});
  }
  int num_rendered = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string source = corpus[round % 4 == 0 ? below(Families().size()) : below(corpus.size())];
    for (size_t i = 0; i <= below(4); ++i) {
      const size_t at = below(source.size() + 1);
      const size_t length = std::min(below(20), source.size() - at);
      switch (below(5)) {
        case 0:
          source.erase(at, length);
          break;
        case 1:
          source.insert(at, pieces[below(pieces.size())]);
          break;
        case 2:
          if (at < source.size()) source[at] = static_cast<char>(random());
          break;
        case 3: {
          const std::string& other = corpus[below(corpus.size())];
          const size_t from = below(other.size() + 1);
          source.insert(at, other.substr(from, below(40)));
          break;
        }
        default:
          source.insert(below(source.size() + 1), source.substr(at, length));
      }
    }
    const Result<std::string> result = Render(source, variables[below(variables.size())]);
    num_rendered += result.ok() ? 1 : 0;
    if (!result.ok()) {
      EXPECT_FALSE(result.error().message.empty() && source.find("raise") == std::string::npos) << source;
    }
  }
  EXPECT_GT(num_rendered, 100);
}

}  // namespace
}  // namespace tandem
