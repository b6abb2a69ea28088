// Answers questions about JSON schemas with the grammars of a real vocabulary:
// tests/grammar/run_grammar_suite.py asks them.
//
//   grammar_suite MODEL.gguf < QUESTIONS > ANSWERS
//
// A question is a line of JSON: {"schema": TEXT, "kind": N (of GrammarSpec; a JSON schema without it),
// "soft": N (of AnswerDrawer), "instances": [TEXT, ...], "draws": N, "seed": S, "any_whitespace": true,
// "strict": true}. Its answer is a line: {"refused": SENTENCE} or {"compile_ms": MS, "bytes": BYTES,
// "accepted": [true or false for each instance], "texts": [what was drawn and ended], "unfinished": N,
// "problems": [TEXT, ...]}.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "grammar/grammar_compiler.h"
#include "grammar/grammar_testing.h"
#include "text/tokenizer.h"

namespace {

using nlohmann::json;
using Kind = tandem::GrammarSpec::Kind;

bool AcceptsTokens(const tandem::Grammar& grammar, const tandem::Tokenizer& tokenizer,
                   const std::string& text) {
  const auto state = grammar.Begin();
  for (const int32_t token : tokenizer.Encode(text, false, false))
    if (!state->Accept(token)) return false;
  return state->may_end();
}

json Answer(const json& question, tandem::GrammarCompiler& compiler, const tandem::Tokenizer& tokenizer,
            const tandem::AnswerDrawer& drawer) {
  const auto begin = std::chrono::steady_clock::now();
  const auto grammar = compiler.CompileAndWait(
      {.kind = static_cast<Kind>(question.value("kind", static_cast<int>(Kind::kJsonSchema))),
       .text = question["schema"].get<std::string>(),
       .any_whitespace = question.value("any_whitespace", true),
       .strict = question.value("strict", true)});
  if (!grammar.ok()) return {{"refused", grammar.error().message}};
  json answer;
  answer["compile_ms"] =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  answer["bytes"] = (*grammar)->memory_bytes();
  answer["accepted"] = json::array();
  for (const json& instance : question.value("instances", json::array()))
    answer["accepted"].push_back(AcceptsTokens(**grammar, tokenizer, instance.get<std::string>()));
  answer["texts"] = json::array();
  answer["problems"] = json::array();
  int unfinished = 0;
  double masks_us = 0, slowest_mask_us = 0;
  int num_masks = 0;
  const int draws = question.value("draws", 0);
  const auto seed = question.value("seed", uint64_t{0});
  for (int i = 0; i < draws; ++i) {
    const auto drawn =
        drawer.Draw(**grammar, seed + static_cast<uint64_t>(i), question.value("soft", i % 40));
    num_masks += drawn.num_masks;
    masks_us += drawn.masks_us;
    slowest_mask_us = std::max(slowest_mask_us, drawn.slowest_mask_us);
    if (!drawn.problem.empty()) {
      answer["problems"].push_back(drawn.problem + " after " + drawn.text);
    } else if (!drawn.has_ended) {
      ++unfinished;
    } else {
      answer["texts"].push_back(drawn.text);
    }
  }
  answer["unfinished"] = unfinished;
  answer["mask_us"] = num_masks == 0 ? 0 : masks_us / num_masks;
  answer["slowest_mask_us"] = slowest_mask_us;
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: grammar_suite MODEL.gguf\n";
    return 2;
  }
  const auto tokenizer = tandem::Tokenizer::FromGguf(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.error().message << "\n";
    return 1;
  }
  const int32_t end = (*tokenizer)->eos_token_id().value();
  const auto vocabulary =
      tandem::MakeGrammarVocabulary(**tokenizer, (*tokenizer)->vocab_size() + 64, {&end, 1});
  tandem::GrammarCompiler compiler(vocabulary, {});
  const tandem::AnswerDrawer drawer(vocabulary);
  for (std::string line; std::getline(std::cin, line);) {
    const json answer = Answer(json::parse(line), compiler, **tokenizer, drawer);
    // What is no UTF-8 is a finding, not an end.
    std::cout << answer.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
