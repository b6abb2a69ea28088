// What grammars of JSON schemas take, and which schemas are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/seeds_testing.h"
#include "grammar/grammar_compiler.h"
#include "grammar/grammar_testing.h"
#include "grammar/json_schema_grammar.h"

namespace tandem {
namespace {

class JsonSchemaTest : public testing::Test {
 protected:
  std::shared_ptr<const Grammar> Compile(const std::string& schema, bool strict = true,
                                         bool any_whitespace = true) {
    auto grammar = compiler_.CompileAndWait({.kind = GrammarSpec::Kind::kJsonSchema,
                                             .text = schema,
                                             .any_whitespace = any_whitespace,
                                             .strict = strict});
    EXPECT_TRUE(grammar.ok()) << schema << ": " << grammar.error().message;
    return grammar.ok() ? grammar.value() : nullptr;
  }
  void Expect(const std::string& schema, const std::vector<std::string>& taken,
              const std::vector<std::string>& not_taken, bool strict = true) {
    const auto grammar = Compile(schema, strict);
    if (grammar == nullptr) return;
    for (const std::string& text : taken)
      EXPECT_TRUE(Takes(*grammar, vocabulary_, text)) << schema << " " << text;
    for (const std::string& text : not_taken)
      EXPECT_FALSE(Takes(*grammar, vocabulary_, text)) << schema << " " << text;
  }

  // Bounds of the seed.
  void CheckDrawnBounds(uint32_t seed, const AnswerDrawer& drawer) {
    SCOPED_TRACE(fmt::format("TANDEM_SEED={}", seed));
    std::mt19937_64 random(seed);
    for (int i = 0; i < 60; ++i) {
      const double scale = std::pow(10.0, static_cast<int>(random() % 9) - 4);
      const auto draw = [&] {
        const double value = (static_cast<double>(random() % 2'000'001) - 1e6) * scale / 1000;
        return std::stod(fmt::format("{:.{}g}", value, 1 + random() % 7));
      };
      double low = draw(), high = draw();
      if (low > high) std::swap(low, high);
      const bool excludes_low = random() % 2 == 0, excludes_high = random() % 2 == 0;
      nlohmann::json schema = {{"type", random() % 3 == 0 ? "integer" : "number"}};
      if (random() % 4 != 0) schema[excludes_low ? "exclusiveMinimum" : "minimum"] = low;
      if (random() % 4 != 0) schema[excludes_high ? "exclusiveMaximum" : "maximum"] = high;
      const auto obeys = [&](double value) {
        return (!schema.contains("minimum") || value >= low) &&
               (!schema.contains("exclusiveMinimum") || value > low) &&
               (!schema.contains("maximum") || value <= high) &&
               (!schema.contains("exclusiveMaximum") || value < high);
      };
      const auto grammar =
          compiler_.CompileAndWait({.kind = GrammarSpec::Kind::kJsonSchema, .text = schema.dump()});
      if (!grammar.ok()) {
        EXPECT_NE(grammar.error().message.find("no value"), std::string::npos) << grammar.error().message;
        EXPECT_LT(high - low, 1.0) << schema;
        continue;
      }
      for (uint64_t j = 0; j < 30; ++j) {
        const auto answer = drawer.Draw(**grammar, seed + j, 8);
        ASSERT_EQ(answer.problem, "") << schema;
        ASSERT_TRUE(answer.has_ended);
        EXPECT_TRUE(obeys(std::stod(answer.text))) << schema << " " << answer.text;
      }
      for (int j = 0; j < 30; ++j) {
        const double whole = std::floor(low + (high - low) * static_cast<double>(j) / 29);
        if (!obeys(whole)) continue;
        EXPECT_TRUE(Takes(**grammar, vocabulary_, fmt::format("{:.0f}", whole))) << schema << " " << whole;
      }
    }
  }

  const GrammarVocabulary vocabulary_ = SmallVocabulary();
  GrammarCompiler compiler_{vocabulary_, {}};
};

TEST_F(JsonSchemaTest, Objects) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
      "c": true}, "required": ["b"]})";
  Expect(schema, {R"({"b":"x"})", R"({ "a" : 1 , "b":"\"","c":[1,{}] })", R"({"b":"","c":null})"},
         {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({"b":1})", R"({"b":"x",})",
          R"({"b":"x"}})"});
  Expect(schema, {R"({"b":"x","d":1,"d":{}})", R"({"a":1,"b":"x","c":1,"ab":2})"},
         {R"({"b":"x","a":"x"})", R"({"b":"x","\u0061":"x"})", R"({"b":"x","b":1})"}, false);
  // Names that begin alike, that are not ASCII, that need escapes.
  Expect(
      R"({"properties": {"é": {"const": 1}, "éa": {"const": 2}, "x\"": {"const": 3}}, "additionalProperties": {"const": 4}})",
      {R"({"é":1,"éa":2,"x\"":3})", R"({"x\"":3})", R"({"ê":4})", R"({"éb":4})", R"({"éab":4})", R"({"":4})"},
      {R"({"é":4})", R"({"éa":4})", R"({"x\"":4})", R"({"é":1,"é":4})", R"({"q":1})"});
  Expect(R"({"type": "object", "properties": {"a": false}, "additionalProperties": true})",
         {"{}", R"({"b":1})"}, {R"({"a":1})"});
  Expect(R"({"required": ["x"]})", {R"({"x":[]})"}, {"{}", "1"});
  Expect(
      R"({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 2})",
      {R"({"a":null})", R"({"a":null,"b":null})"}, {"{}", R"({"a":null,"b":null,"c":null})", R"({"a":1})"});
  Expect(R"({"patternProperties": {"^x[0-9]+$": {"type": "integer"}}})", {"{}", R"({"x1":1,"x22":2})"},
         {R"({"x":1})", R"({"x1":"a"})", R"({"y1":1})"});
  Expect(
      R"({"type": "object", "propertyNames": {"enum": ["p", "q"]}, "additionalProperties": {"type": "integer"}})",
      {R"({"p":1,"q":2})"}, {R"({"r":1})"});
}

TEST_F(JsonSchemaTest, NamesOfAnnotationsAreNamesOfProperties) {
  // `title` says nothing as a keyword, and is a property as others.
  Expect(R"({"type": "array", "prefixItems": [
      {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
      {"type": "object", "properties": {"title": {"type": "integer"}}, "required": ["title"]}], "minItems": 2, "items": false})",
         {R"([{"title":"a"},{"title":1}])"},
         {R"([{"title":"a"},{"title":"a"}])", R"([{"title":1},{"title":1}])"});
}

TEST_F(JsonSchemaTest, Arrays) {
  Expect(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
         {"[1]", "[ 1 , 2,3 ]"}, {"[]", "[1,2,3,4]", R"(["a"])", "[1,]"});
  Expect(
      R"({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3})",
      {"[1]", "[1,null]", "[1,null,true]"}, {"[]", "[null]", "[1,true]", "[1,null,true,true]"});
  Expect(R"({"items": [{"type": "integer"}], "additionalItems": false})", {"[]", "[1]"}, {"[1,1]"});
  Expect(R"({"type": "array", "items": false})", {"[]", "[ ]"}, {"[1]"});
  Expect(R"({"type": "array", "maxItems": 150, "minItems": 150, "items": {"const": 1}})",
         {"[1" +
          [] {
            std::string s;
            for (int i = 0; i < 149; ++i) s += ",1";
            return s;
          }() +
          "]"},
         {"[1" +
          [] {
            std::string s;
            for (int i = 0; i < 148; ++i) s += ",1";
            return s;
          }() +
          "]"});
}

TEST_F(JsonSchemaTest, Strings) {
  Expect(R"({"type": "string"})", {R"("")", R"("\u00e9\ud7ff\n")", "\"é€\""},
         {"\"\x01\"", "\"\t\"", "\"\n\"", R"("\ud800")", R"("\x")", R"(")"});
  Expect(R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {R"("ab")", R"("abc")", "\"é€\"", "\"€€€\""},
         {R"("a")", R"("abcd")", "\"é\"", "\"a\t\"", "\"€€€€\""});
  std::string long_text(40, 'x');
  Expect(R"({"type": "string", "maxLength": 40})", {"\"\"", "\"" + long_text + "\""},
         {"\"" + long_text + "y\""});
  Expect(R"({"type": "string", "minLength": 3, "maxLength": 40})", {"\"" + long_text + "\"", "\"abc\""},
         {"\"" + long_text + "y\"", "\"ab\""});
  Expect(R"({"pattern": "^a\\.(b|\")*\\d$"})", {R"("a.b\"b7")", R"("a.0")"},
         {R"("axb7")", R"("a.b")", R"("a."7")", R"("xa.7")"});
  Expect(R"({"type": "string", "format": "date"})", {R"("2024-04-30")"},
         {R"("2024-04-31")", R"("2024-4-30")", R"("x")"});
  Expect(R"({"type": "string", "format": "uuid", "minLength": 36})",
         {R"("00000000-0000-0000-0000-000000000000")"}, {R"("0")"});
}

TEST_F(JsonSchemaTest, Combinations) {
  Expect(R"({"enum": ["a", 1, null, {"b": [1, "\""]}]})", {R"("a")", "1", "null", R"({"b":[1,"\""]})"},
         {"2", R"("b")"});
  Expect(R"({"type": "string", "enum": ["a", 1, "long"], "maxLength": 2})", {R"("a")"}, {"1", R"("long")"});
  Expect(R"({"const": "x\n"})", {R"("x\n")"}, {R"("x")"});
  Expect(R"({"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "T", "default": null})",
         {"1", "null"}, {R"("a")"});
  Expect(R"({"type": ["integer", "null"]})", {"1", "null"}, {"1.5"});
  Expect(R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
             "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"}, {"{}"});
  Expect(R"({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}],
             "$defs": {"a": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}})",
         {R"({"x":1,"y":null})"}, {R"({"x":1})", R"({"y":null,"x":1})"});
  Expect(
      R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "v": {"type": "integer"}}, "required": ["k", "v"]},
                       {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}, {"type": "string"}]})",
      {R"({"k":"a","v":1})", R"({"k":"b"})", R"("x")"}, {R"({"k":"a"})", R"({"k":"c"})"});
  Expect(R"({"$ref": "#/$defs/list", "$defs": {"list": {"type": "object", "properties": {"next": {"anyOf":
             [{"$ref": "#/$defs/list"}, {"type": "null"}]}}, "required": ["next"]}}})",
         {R"({"next":{"next":null}})"}, {"{}", R"({"next":1})"});
  Expect(
      R"({"type": "object", "properties": {"a~/b": {"type": "integer"}, "c": {"$ref": "#/properties/a~0~1b"}}})",
      {R"({"c":1})"}, {R"({"c":"x"})"});
}

TEST_F(JsonSchemaTest, Numbers) {
  Expect(R"({"type": "integer"})", {"0", "-1", "999999999999999999"},
         {"01", "-0", "1.5", "1.0", "+1", "1e3"});
  Expect(R"({"type": "number"})", {"0", "-0.5", "1e5", "1.25E-3"}, {"01", ".5", "1.", "1e999", "NaN"});
  Expect(R"({"type": "number", "multipleOf": 5, "minimum": -7, "maximum": 10})", {"-5", "0", "5", "10"},
         {"-10", "1", "15", "5.0"});
  Expect(R"({"type": "integer", "multipleOf": 3})", {"0", "3", "-9", "12345"}, {"1", "-0", "12346"});
  // Draft 4.
  Expect(R"({"type": "integer", "minimum": 3, "exclusiveMinimum": true, "maximum": 5})", {"4", "5"},
         {"3", "6"});
}

// Every number between bounds that the grammar takes is between them, and integers between them are taken.
TEST_F(JsonSchemaTest, NumbersBetweenDrawnBounds) {
  const AnswerDrawer drawer(vocabulary_);
  for (const uint32_t seed : SeedsToTry(1, 20)) CheckDrawnBounds(seed, drawer);
}

TEST_F(JsonSchemaTest, WithoutFreeWhiteSpaceThereIsOneWayToWriteAValue) {
  const auto grammar = Compile(
      R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {}}})",
      true, false);
  EXPECT_TRUE(Takes(*grammar, vocabulary_, R"({"a": [1, 2], "b": {"c": [], "d": "e"}})"));
  for (const char* text :
       {R"({"a":[1, 2]})", R"({"a": [1,2]})", R"({ "a": [1]})", R"({"a": [1] })", R"({"a": [1],"b": 1})"})
    EXPECT_FALSE(Takes(*grammar, vocabulary_, text)) << text;
}

TEST(JsonSchemaRefusals, NameThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not": {}})", "#/not: this keyword"},
      {R"({"if": {}})", "#/if: this keyword"},
      {R"({"type": "object", "properties": {"a/b": {"then": {}}}})", "#/properties/a~1b/then: this keyword"},
      {R"({"else": {}})", "#/else"},
      {R"({"dependentRequired": {}})", "#/dependentRequired"},
      {R"({"dependentSchemas": {}})", "#/dependentSchemas"},
      {R"({"dependencies": {}})", "#/dependencies"},
      {R"({"type": "array", "contains": {}})", "#/contains"},
      {R"({"minContains": 1})", "#/minContains"},
      {R"({"maxContains": 1})", "#/maxContains"},
      {R"({"type": "array", "uniqueItems": true})", "#/uniqueItems"},
      {R"({"$dynamicRef": "#a"})", "#/$dynamicRef"},
      {R"({"$recursiveRef": "#"})", "#/$recursiveRef"},
      {R"({"type": "string", "contentEncoding": "base64"})", "#/contentEncoding"},
      {R"({"type": "string", "contentMediaType": "text/html"})", "#/contentMediaType"},
      {R"({"type": "string", "nullable": true})", "#/nullable"},
      {R"({"type": "string", "minlength": 1})", "#/minlength: this is no keyword"},
      {R"({"$ref": "http://example.com/schema"})", "#/$ref: 'http://example.com/schema' is not supported"},
      {R"({"$ref": "#anchor"})", "#/$ref: '#anchor' is not supported"},
      {R"({"$ref": "#/$defs/none"})", "#/$ref: there is nothing at '#/$defs/none'"},
      {R"({"properties": {"a": {"$id": "http://x/y"}}})", "#/properties/a/$id: only the whole schema"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "#/oneOf: a value may obey both 0 and 1"},
      {R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})", "#/oneOf: a value may obey both"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "#/allOf/1: schemas that hold together"},
      {R"({"type": "number", "multipleOf": 0.01})", "#/multipleOf: only multiples of positive integers"},
      {R"({"type": "integer", "multipleOf": 7, "minimum": 1})",
       "#/multipleOf: `multipleOf` beside only one bound"},
      {R"({"type": "string", "format": "regex"})", "#/format: the format 'regex' is not supported"},
      {R"({"type": "string", "pattern": "a*", "minLength": 2})",
       "#/minLength: this length beside a `pattern`"},
      {R"x({"type": "string", "pattern": "a(?=b)"})x",
       "#/pattern: at byte 1 of the regular expression assertions"},
      {R"({"type": "string", "pattern": "(a)\\1"})",
       "#/pattern: at byte 3 of the regular expression references"},
      {R"({"type": "string", "pattern": "a", "format": "date"})", "#/pattern: `pattern` beside `format`"},
      {R"({"patternProperties": {"a": {}, "b": {}}})", "#/patternProperties: patterns of property names"},
      {R"({"properties": {"a": {}}, "patternProperties": {"b": {}}})",
       "#/patternProperties: patterns of property names"},
      {R"({"properties": {"a": {}}, "propertyNames": {"maxLength": 3}})",
       "#/propertyNames: `propertyNames` beside"},
      {R"({"type": "object", "minProperties": 2})", "#/minProperties: more than 1"},
      {R"({"properties": {"a": {}, "b": {}}, "maxProperties": 1})",
       "#/maxProperties: `maxProperties` beside"},
      {R"({"type": "string", "minLength": -1})", "#/minLength: must be an integer from 0"},
      {R"({"type": "strin"})", "#/type: must be a type of JSON"},
      {R"({"required": "a"})", "#/required: must be an array of strings"},
      {R"({"items": 1})", "#/items: must be a schema"},
      {R"({"enum": []})", "#/enum: must be an array of at least one value"},
      {R"({"enum": [123456789012345678901]})", "#/enum: numbers from 2^53"},
      {R"({"enum": [{"a": 1}], "properties": {"a": {}}})", "#/properties: this keyword beside `enum`"},
      {R"({"type": "integer", "enum": ["a"]})", "#: no value obeys this schema"},
      {R"({"minLength": 3, "maxLength": 2})", "#: no value obeys this schema"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "#: no value obeys this schema"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       "#: no value obeys this schema"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": false})",
       "#: no value obeys this schema"},
      {R"({"$ref": "#"})", "#: no value obeys this schema"},
      {R"({"allOf": [{"$ref": "#"}, {"type": "integer"}]})",
       "#/allOf/0: the references in `allOf` have no end"},
      {R"({"allOf": [{"$ref": "http://x/y"}]})", "#/allOf/0/$ref: 'http://x/y' is not supported"},
      {R"({"allOf": [{"properties": {"a": {"not": {}}}}]})", "#/allOf/0/properties/a/not: this keyword"},
      {R"({"properties": {"a": {}}, "allOf": [{"properties": {"a": {"contains": {}}}}]})",
       "#/allOf/0/properties/a/contains: this keyword"},
      {R"({"$ref": "#/$defs/b", "minProperties": 0, "$defs": {"b": {"items": {"anyOf": [true, {"if": {}}]}}}})",
       "#/$defs/b/items/anyOf/1/if: this keyword"},
      {R"({"properties": {"a": {"pattern": "a"}}, "allOf": [{"properties": {"a": {"pattern": "b"}}}]})",
       "#/properties/a: schemas that hold together"},
      {"false", "#: no value obeys this schema"},
      {"[]", "#: a schema is an object, true or false"},
      {"{\"a\": }", "the JSON schema is no JSON: there is a mistake at byte 7"},
      {R"({"type": "integer", "type": "string"})", "the JSON schema has the key 'type' twice in one object"},
  };
  for (const auto& [schema, message] : cases) {
    const auto grammar = GrammarOfJsonSchema(schema, {});
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_TRUE(grammar.error().message.starts_with(message)) << schema << ": " << grammar.error().message;
  }
}

TEST(JsonSchemaRefusals, AnnotationsAndExtensionsSayNothing) {
  const auto grammar =
      GrammarOfJsonSchema(R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://x",
      "title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c", "deprecated": true, "readOnly": true,
      "writeOnly": false, "x-order": 3, "type": "integer"})",
                          {});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_EQ(*grammar, *GrammarOfJsonSchema(R"({"type": "integer"})", {}));
}

}  // namespace
}  // namespace tandem
