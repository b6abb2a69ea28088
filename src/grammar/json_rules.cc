#include "grammar/json_rules.h"

#include <map>
#include <utility>

#include "base/utf8.h"
#include "grammar/json_text_expressions.h"

namespace tandem {
namespace {

// Prefixes of names after which other keys go on. Each of them is a state, and takes a look at the whole
// vocabulary to compile.
constexpr size_t kMaxKeyPrefixes = 12;

Expression Unbounded(Expression what) {
  return Repeat(std::move(what), 0, Expression::kUnbounded);
}

}  // namespace

struct JsonRules::Trie {
  std::map<uint32_t, Trie> children;
  bool is_name = false;
  // Otherwise no key begins like this.
  bool is_followed = false;
};

JsonRules::JsonRules(ExpressionGrammar& grammar, const JsonStyle& style) : grammar_(grammar) {
  const Expression blanks = Unbounded(OneOf({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}}));
  space_ = style.any_whitespace ? blanks : Literal("");
  comma_ = style.any_whitespace ? Sequence({blanks, Literal(","), blanks}) : Literal(", ");
  colon_ = style.any_whitespace ? Sequence({blanks, Literal(":"), blanks}) : Literal(": ");

  const CharSet hex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  // No surrogates: half of a pair is no character.
  const Expression code =
      Choice({Sequence({OneOf({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), OneOf(hex)}),
              Sequence({OneOf({{'D', 'D'}, {'d', 'd'}}), OneOf({{'0', '7'}})})});
  const CharSet letters = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                           {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
  const Expression escape = grammar.Rule(
      "escape", Choice({OneOf(letters), Sequence({Literal("u"), code, OneOf(hex), OneOf(hex)})}));
  const Expression escaped = Sequence({Literal("\\"), escape});

  const Expression rest = grammar.Declare("string_rest");
  grammar.Define(
      rest, Choice({Literal("\""), Sequence({OneOf(PlainStringChars()), rest}), Sequence({escaped, rest})}));
  string_ = grammar.Rule("string", Sequence({Literal("\""), rest}));
  plain_rest_ = grammar.Declare("plain_rest");
  grammar.Define(plain_rest_, Choice({Literal("\""), Sequence({OneOf(PlainStringChars()), plain_rest_})}));

  any_ = grammar.Declare("any");
  array_ = grammar.Rule("array", Braced(List(any_, 0, Expression::kUnbounded), "[", "]"));
  object_ = grammar.Rule(
      "object", Braced(List(Sequence({string_, colon_, any_}), 0, Expression::kUnbounded), "{", "}"));
  const Expression number = grammar.Rule("number", NumbersBetween(std::nullopt, std::nullopt));
  grammar.Define(
      any_, Choice({object_, array_, string_, number, Literal("true"), Literal("false"), Literal("null")}));
}

Expression JsonRules::Braced(Expression inside, const char* open, const char* close) const {
  return Sequence({Literal(open), space_, std::move(inside), Literal(close)});
}

Expression JsonRules::List(const Expression& what, int64_t min, int64_t max) const {
  if (max == 0) return Literal("");
  const int64_t more = max == Expression::kUnbounded ? max : max - 1;
  Expression some =
      Sequence({what, Repeat(Sequence({comma_, what}), std::max<int64_t>(min - 1, 0), more), space_});
  return min == 0 ? Optional(std::move(some)) : some;
}

Expression JsonRules::StringExcept(const std::vector<std::string>& names) {
  Trie root;
  for (const std::string& name : names) {
    Trie* node = &root;
    bool is_plain = true;
    for (size_t at = 0; at < name.size() && is_plain; at += Utf8Length(name[at])) {
      const uint32_t c = DecodeUtf8(name, at);
      is_plain = PlainStringChars().Has(c);
      if (is_plain) node = &node->children[c];
    }
    // Others cannot be said without escapes.
    if (is_plain) node->is_name = true;
  }
  std::vector<Trie*> followed = {&root};
  for (size_t i = 0; i < followed.size(); ++i) {
    followed[i]->is_followed = true;
    for (auto& [c, child] : followed[i]->children)
      if (followed.size() < kMaxKeyPrefixes) followed.push_back(&child);
  }
  return grammar_.Rule("other_key", Sequence({Literal("\""), AfterPrefix(root)}));
}

Expression JsonRules::AfterPrefix(const Trie& node) {
  std::vector<Expression> options;
  if (!node.is_name) options.push_back(Literal("\""));
  CharSet taken;
  for (const auto& [c, child] : node.children) taken.Add(c, c);
  options.push_back(Sequence({OneOf(PlainStringChars().Minus(taken)), plain_rest_}));
  for (const auto& [c, child] : node.children) {
    if (!child.is_followed) continue;
    std::string text;
    AppendUtf8(c, &text);
    options.push_back(Sequence({Literal(std::move(text)), AfterPrefix(child)}));
  }
  return Choice(std::move(options));
}

}  // namespace tandem
