// Which characters of what a template renders are content.
#include "jinja/sourced_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/seeds_testing.h"
#include "jinja/error.h"
#include "jinja/filters.h"
#include "jinja/interpreter.h"
#include "jinja/json.h"
#include "jinja/parser.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

using Json = nlohmann::ordered_json;

// Nothing if the template cannot be rendered.
std::optional<SourcedText> RenderContent(const std::string& source, const Json& content) {
  std::vector<std::pair<std::string, Value>> values;
  for (const auto& [name, value] : content.items())
    values.emplace_back(name, FromJson(value, Source::kContent));
  try {
    const Body body = ParseTemplate(source);
    return Interpreter(values).Render(body);
  } catch (const TemplateError&) {
    return std::nullopt;
  }
}

// The text with content between braces.
std::string Marked(const std::string& source, const Json& content) {
  const std::optional<SourcedText> text = RenderContent(source, content);
  if (!text) return "error";
  std::string out;
  Source previous = Source::kTemplate;
  for (size_t i = 0; i < text->size(); ++i) {
    const Source now = text->provenance().At(i);
    if (now != previous) out.push_back(now == Source::kContent ? '{' : '}');
    previous = now;
    out.push_back(text->bytes()[i]);
  }
  return previous == Source::kContent ? out + "}" : out;
}

const Json kContent = {{"c", "q<v>w"},
                       {"n", 7},
                       {"f", 1.5},
                       {"t", true},
                       {"nothing", nullptr},
                       {"lines", "q\n\nv\r\nw"},
                       {"d", {{"k", "<v>"}}},
                       {"l", {"q", 1}},
                       {"mark", "\xE2\x80\xA8q\"'"}};

struct RuleCase {
  const char* source;
  const char* expected;
};

class ContentRules : public testing::TestWithParam<RuleCase> {};

TEST_P(ContentRules, Holds) {
  EXPECT_EQ(Marked(GetParam().source, kContent), GetParam().expected) << GetParam().source;
}

// Copies keep what they are.
INSTANTIATE_TEST_SUITE_P(
    Copies, ContentRules,
    testing::Values(
        RuleCase{"<{{ c }}>", "<{q<v>w}>"}, RuleCase{"{{ '<' ~ c ~ '>' }}", "<{q<v>w}>"},
        RuleCase{"{{ ('<' + c + '>')[::-1] }}", ">{w>v<q}<"}, RuleCase{"{{ ('ab' ~ c)[1:4] }}", "b{q<}"},
        RuleCase{"{{ ('ab' ~ c)[2] }}", "{q}"}, RuleCase{"{{ ('ab' ~ c)[-1] ~ ('ab' ~ c)[0] }}", "{w}a"},
        RuleCase{"{% for x in 'a' ~ c %}{{ x }}.{% endfor %}", "a.{q}.{<}.{v}.{>}.{w}."},
        RuleCase{"{{ c.replace('<', '[') }}", "{q}[{v>w}"},
        RuleCase{"{{ 'a<b'|replace('<', c) }}", "a{q<v>w}b"},
        RuleCase{"{{ 'ab'.replace('', c[0]) }}", "{q}a{q}b{q}"},
        RuleCase{"{{ (c ~ '<x').split('<')|join('-') }}", "{q}-{v>w}-x"},
        RuleCase{"{{ 'x y'.split()|join(c) }}", "x{q<v>w}y"},
        RuleCase{"{{ (c ~ '<x').partition('<')[1] }}", "{<}"},
        RuleCase{"{{ ('a' ~ c).upper() }}", "A{Q<V>W}"}, RuleCase{"{{ ('a' ~ c)|title }}", "A{q<V>w}"},
        RuleCase{"{{ ('  ' ~ c ~ ' ')|trim }}", "{q<v>w}"}, RuleCase{"{{ c.center(9) }}", "  {q<v>w}  "},
        RuleCase{"{{ 'a'.center(5, c[0]) }}", "{qq}a{qq}"},
        RuleCase{"{{ ('+' ~ c).zfill(8) }}", "+00{q<v>w}"},
        RuleCase{"{{ c|truncate(4, true, '..', 0) }}", "{q<}.."},
        RuleCase{"{{ lines|indent(1) }}", "{q\n\n} {v\n} {w}"},
        RuleCase{"{{ ('a\n' ~ lines)|indent(c[0], true) }}", "{q}a\n{qq\n\nqv\nqw}"},
        RuleCase{"{{ ('a\tb' ~ c ~ '\t').expandtabs(4) }}", "a   b{q<v>w}  "},
        RuleCase{"{{ c * 2 ~ 'ab' * n }}", "{q<v>wq<v>w}ababababababab"},
        RuleCase{"{{ '%s|%5s' % (c, c[:2]) }}", "{q<v>w}|   {q<}"},
        RuleCase{"{{ (c ~ '%%%s') % 'a' }}", "{q<v>w}%a"}, RuleCase{"{{ '%c' % 'a' ~ '%c' % c[0] }}", "a{q}"},
        RuleCase{"{{ '{}{{x}}{:>3}'.format(c, c[0]) }}", "{q<v>w}{x}  {q}"},
        RuleCase{"{{ '{:{}>3}{:.1}'.format('a', c[0], c) }}", "{qq}a{q}"},
        RuleCase{"{{ '{0[k]}'.format(d) ~ '{d.k}'.format(d=d) }}", "{<v><v>}"},
        RuleCase{"{{ ('a' ~ c)|list|first ~ c|last }}", "a{w}"},
        RuleCase{"{{ ('a' ~ c)|reverse }}", "{w>v<q}a"},
        RuleCase{"{% macro m(x) %}<{{ x }}{{ caller() }}>{% endmacro %}{% call m(c) %}y{{ n }}{% endcall %}",
                 "<{q<v>w}y{7}>"},
        RuleCase{"{% set x %}<{{ c }}>{% endset %}{{ x }}", "<{q<v>w}>"},
        RuleCase{"{% filter upper %}a{{ c }}{% endfilter %}", "A{Q<V>W}"},
        RuleCase{"{% set s = namespace(x='a') %}{% for y in l %}{% set s.x = s.x ~ y %}{% endfor %}{{ s.x }}",
                 "a{q1}"},
        RuleCase{"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "{k}={<v>}"},
        RuleCase{"{{ dict(**d)|list|first ~ dict(a=c)|list|first }}", "{k}a"},
        RuleCase{"{% macro m() %}{{ kwargs|list|join }}{% endmacro %}{{ m(**d) ~ m(a=1) }}", "{k}a"},
        RuleCase{"{% set j = joiner(c) %}{{ j() }}a{{ j() }}b", "a{q<v>w}b"},
        RuleCase{"{{ strftime_now('%%') ~ strftime_now(c) }}", "%{q<v>w}"},
        RuleCase{"{{ undefined_name|default(c) ~ c|default('a') }}", "{q<v>wq<v>w}"},
        RuleCase{"{{ [c, 'a', c]|unique|join('.') }}", "{q<v>w}.a"},
        RuleCase{"{{ c if n > 3 else 'a' }}{{ 'a' if c else c }}", "{q<v>w}a"},
        RuleCase{"{{ c|string ~ c|safe ~ 'a'|safe }}", "{q<v>wq<v>w}a"}));

// What is made of characters or printed around values.
// Case can change the length of a character.
INSTANTIATE_TEST_SUITE_P(Case, ContentRules,
                         testing::Values(RuleCase{"{{ ('\u0390' ~ c)|title }}", "\u0399\u0308\u0301{q<V>w}"},
                                         RuleCase{"{{ ('\u0390' ~ c)|upper }}", "\u0399\u0308\u0301{Q<V>W}"},
                                         RuleCase{"{{ (c ~ '\u00DF\u0390').swapcase() }}",
                                                  "{Q<V>W}SS\u0399\u0308\u0301"}));

INSTANTIATE_TEST_SUITE_P(
    Made, ContentRules,
    testing::Values(RuleCase{"{{ c|escape }}|{{ ('<' ~ c[0])|e }}", "{q&lt;v&gt;w}|&lt;{q}"},
                    RuleCase{"{{ '<'|safe + c }}", "<{q&lt;v&gt;w}"},
                    RuleCase{"{{ c|tojson }}", "{\"q<v>w\"}"},
                    RuleCase{"{{ ('\n' ~ c[0])|tojson }}", "{\"}\\n{q\"}"},
                    RuleCase{"{{ d|tojson ~ ['a']|tojson }}", "{{\"k\": \"<v>\"}[\"}a{\"]}"},
                    RuleCase{"{{ [1, n]|tojson(separators=('-', ':')) }}", "{[}1-{7]}"},
                    RuleCase{"{{ l|tojson(indent=1) }}", "{[\n \"q\",\n 1\n]}"},
                    RuleCase{"{{ mark|tojson(ensure_ascii=true) }}", "{\"\\u2028q\\\"'\"}"},
                    RuleCase{"{{ ['a', c] }}", "{['}a{', 'q<v>w']}"},
                    RuleCase{"{{ ['a' ~ mark] }}", "{['}a{\\u2028q\"\\'']}"},
                    RuleCase{"{{ '%r%a' % (c[0], mark[0]) }}", "{'q''\\u2028'}"}));

INSTANTIATE_TEST_SUITE_P(
    Scalars, ContentRules,
    testing::Values(
        RuleCase{"{{ n }}{{ 7 }}{{ n + 1 }}{{ 1 + 1 }}", "{7}7{8}2"},
        RuleCase{"{{ -n }}{{ +n }}{{ n|abs }}{{ f|round }}{{ f|int }}{{ n|float }}", "{-7772.017.0}"},
        RuleCase{"{{ '3'|int }}{{ c[5:]|int(n) }}{{ (c[:0] ~ '3')|int }}", "3{7}3"},
        RuleCase{"{{ t }}{{ true }}{{ nothing }}{{ none }}", "{True}True{None}None"},
        RuleCase{"{{ c|length }}{{ 'abc'|length }}{{ ('a' ~ c)|length }}", "{5}3{6}"},
        RuleCase{"{{ l|length }}{{ d|count }}{% for x in l %}{{ loop.index }}{% endfor %}", "2112"},
        RuleCase{"{{ c.find('<') }}{{ c.count('v') }}{{ c.rfind('?') }}{{ c|wordcount }}", "{11-13}"},
        RuleCase{"{{ 'abc'.find('c') }}", "2"},
        RuleCase{"{{ c == 'a' }}{{ 'v' in c }}{{ n is odd }}{{ c.startswith('q') }}", "FalseTrueTrueTrue"},
        RuleCase{"{{ '%d-%05.1f-%x' % (n, f, 10) }}{{ '{:03}{:,}'.format(n, 1000) }}",
                 "{7}-00{1.5}-a00{7}1,000"},
        RuleCase{"{{ '%c' % n|int }}{{ '{:c}'.format(60) }}", "{\x07}<"},
        RuleCase{"{% for i in range(n - 5) %}{{ i }}{% endfor %}{% for i in range(2) %}{{ i }}{% endfor %}",
                 "{01}01"},
        RuleCase{"{{ [n, 1]|sum }}{{ [1, 2]|sum }}{{ [1, n]|max }}{{ range(9)[n] }}", "{8}3{7}7"}));

// Every character of kOwn is written by the template and every one of kGiven by the request, so that a
// character says itself what it must be, whatever was done to the text. Both are closed under changes of
// case, and printing makes none of them.
constexpr std::u32string_view kOwn = U"hH\u0127\u0126\u00F6\u00D6\u0390\u03B9\u0399\u03C3\u03C2\u03A3_!";
constexpr std::u32string_view kGiven = U"qwyzQWYZ\u00E9\u00C9\u1E98@";
constexpr std::u32string_view kNeutral = U" \t\n.-%{}\u2028";

class RandomTemplates {
 public:
  explicit RandomTemplates(uint32_t seed) : random_(seed) {}

  size_t Below(size_t bound) { return random_() % bound; }

  std::string Draw(std::u32string_view alphabet, size_t max_length) {
    std::u32string text;
    for (size_t length = Below(max_length + 1); length > 0; --length) {
      text.push_back(Below(4) == 0 ? kNeutral[Below(kNeutral.size())] : alphabet[Below(alphabet.size())]);
    }
    return EncodeUtf8(text);
  }

  // An expression whose value is a text.
  std::string TextExpression(int depth) {
    if (depth == 0) return Below(2) == 0 ? fmt::format("c{}", Below(4)) : Literal(Draw(kOwn, 6));
    const auto text = [&] { return TextExpression(depth - 1); };
    switch (Below(14)) {
      case 0:
        return fmt::format("({} ~ {})", text(), text());
      case 1:
        return fmt::format("({} + {})", text(), text());
      case 2:
        return fmt::format("({})[{}:{}:{}]", text(), Bound(), Bound(), Below(3) == 0 ? "-1" : Bound());
      case 3:
        return fmt::format("({})[{}]", text(), Bound());
      case 4: {
        static const std::vector<std::string> kCalls = {"upper()",          "lower()",
                                                        "casefold()",       "title()",
                                                        "capitalize()",     "swapcase()",
                                                        "strip()",          "lstrip()",
                                                        "rstrip()",         "strip({})",
                                                        "lstrip({})",       "rstrip({})",
                                                        "replace({},{})",   "replace({},{},1)",
                                                        "removeprefix({})", "removesuffix({})",
                                                        "ljust(12)",        "rjust(12)",
                                                        "center(13)",       "zfill(9)",
                                                        "expandtabs()",     "expandtabs(3)",
                                                        "join([{},{}])",    "join({})",
                                                        "format({},{})",    "format_map(dict(a={}))"};
        return fmt::format("({}).{}", text(), Filled(kCalls[Below(kCalls.size())], depth));
      }
      case 5: {
        static const std::vector<std::string> kFilters = {"upper",
                                                          "lower",
                                                          "capitalize",
                                                          "title",
                                                          "trim",
                                                          "trim({})",
                                                          "replace({},{})",
                                                          "indent",
                                                          "indent(2,true)",
                                                          "indent({},true,true)",
                                                          "truncate(5,true,{},0)",
                                                          "truncate(4,false)",
                                                          "center(11)",
                                                          "string",
                                                          "safe",
                                                          "e",
                                                          "forceescape",
                                                          "tojson",
                                                          "tojson(ensure_ascii=true)",
                                                          "reverse",
                                                          "default({})",
                                                          "join({})",
                                                          "first",
                                                          "last",
                                                          "list|join({})",
                                                          "map('upper')|join",
                                                          "batch(2)|map('join')|join({})",
                                                          "sort|join",
                                                          "unique|join",
                                                          "format({},{})",
                                                          "slice(3)|map('join')|join({})",
                                                          "select|join({})",
                                                          "list|tojson(separators=({},{}))",
                                                          "list|tojson(indent={})",
                                                          "list|string",
                                                          "groupby(0)|map('first')|join",
                                                          "max",
                                                          "min"};
        return fmt::format("({})|{}", text(), Filled(kFilters[Below(kFilters.size())], depth));
      }
      case 6: {
        static const std::vector<std::string> kSplits = {
            "split()",      "split({})",        "split(None,1)", "rsplit({},1)",  "rsplit()",
            "splitlines()", "splitlines(true)", "partition({})", "rpartition({})"};
        const std::string split = Filled(kSplits[Below(kSplits.size())], depth);
        return Below(2) == 0 ? fmt::format("({}).{}|join({})", text(), split, text())
                             : fmt::format("({}).{}[{}]", text(), split, Bound());
      }
      case 7:
        return fmt::format("('{}%{}s{}%r' % ({}, {}))", Quoted(Draw(kOwn, 3)), Below(9),
                           Quoted(Draw(kOwn, 3)), text(), text());
      case 8:
        return fmt::format("('{}{{:{}>{}}}{{!a}}'.format({}, {}))", Quoted(Draw(U"hH", 3)), "h", Below(9),
                           text(), text());
      case 9:
        return fmt::format("(({}) % ({}))", text(), text());
      case 10:
        return fmt::format("({} * {})", text(), Below(3));
      case 11:
        return fmt::format("({{{}: {}, 1: [{}]}}|{})", text(), text(), text(),
                           Below(2) == 0 ? "string" : "tojson");
      case 12:
        return fmt::format("m({}, {})", text(), text());
      default:
        return fmt::format("({} if {} else {})", text(), text(), text());
    }
  }

  std::string Template() {
    const auto text = [&] { return TextExpression(static_cast<int>(Below(4))); };
    std::string source = "{% macro m(x, y) %}" + Plain() + "{{ x }}" + Plain() + "{{ y ~ x }}{% endmacro %}";
    for (size_t parts = 1 + Below(4); parts > 0; --parts) {
      switch (Below(5)) {
        case 0:
          source += "{% for x in " + text() + " %}" + Plain() + "{{ x ~ loop.cycle('h', c0) }}{% endfor %}";
          break;
        case 1:
          source += "{% set c1 %}" + Plain() + "{{ " + text() + " }}{% endset %}{{ c1 }}";
          break;
        case 2:
          source += "{% filter upper %}" + Plain() + "{{ " + text() + " }}{% endfilter %}";
          break;
        default:
          source += Plain() + "{{ " + text() + " }}";
      }
    }
    return source;
  }

 private:
  static std::string Quoted(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '\n') {
        out += "\\n";
      } else {
        out.push_back(c);
      }
    }
    return out;
  }
  static std::string Literal(const std::string& text) { return "'" + Quoted(text) + "'"; }
  std::string Plain() { return EncodeUtf8(std::u32string(1, kOwn[Below(kOwn.size())])); }
  std::string Bound() { return Below(3) == 0 ? "" : fmt::format("{}", static_cast<int>(Below(9)) - 4); }
  std::string Filled(std::string call, int depth) {
    for (size_t at; (at = call.find("{}")) != std::string::npos;)
      call.replace(at, 2, TextExpression(depth - 1));
    return call;
  }

  std::mt19937 random_;
};

// The parameter: the seed of the first template; each has one of its own.
class RandomSourcedText : public ::testing::TestWithParam<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSourcedText, ::testing::ValuesIn(SeedsToTry(0, 20)));

TEST_P(RandomSourcedText, EveryCharacterKeepsItsSource) {
  constexpr int kRounds = 20'000;
  int rendered = 0;
  int64_t own = 0;
  int64_t given = 0;
  for (int round = 0; round < kRounds; ++round) {
    const uint32_t seed = GetParam() + static_cast<uint32_t>(round);
    RandomTemplates random(seed);
    Json content = Json::object();
    for (int i = 0; i < 4; ++i) content[fmt::format("c{}", i)] = random.Draw(kGiven, 8);
    const std::string source = random.Template();
    const std::optional<SourcedText> text = RenderContent(source, content);
    if (!text) continue;
    ++rendered;
    const std::string_view bytes = text->bytes();
    for (size_t at = 0; at < bytes.size();) {
      const size_t begin = at;
      const char32_t c = NextCodePoint(bytes, at);
      const bool is_own = kOwn.find(c) != std::u32string_view::npos;
      const bool is_given = kGiven.find(c) != std::u32string_view::npos;
      own += is_own ? 1 : 0;
      given += is_given ? 1 : 0;
      if (!is_own && !is_given) continue;
      for (size_t i = begin; i < at; ++i) {
        ASSERT_EQ(text->provenance().At(i), is_given ? Source::kContent : Source::kTemplate)
            << "seed " << seed << "\n"
            << source << "\n"
            << content.dump() << "\n"
            << bytes << "\nat " << i;
      }
    }
  }
  EXPECT_GT(rendered, kRounds / 2);
  EXPECT_GT(own, 30'000);
  EXPECT_GT(given, 30'000);
}

}  // namespace
}  // namespace tandem::jinja
