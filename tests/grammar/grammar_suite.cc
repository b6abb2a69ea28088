// Answers questions about JSON schemas with the grammars of a vocabulary: tests/grammar/run_grammar_suite.py
// asks them.
//
//   grammar_suite TOKENIZER.gguf             < QUESTIONS > ANSWERS
//   grammar_suite --engine MODEL MAX_TOKENS  < QUESTIONS > ANSWERS
//
// A question is a line of JSON: {"schema": TEXT, "kind": N (of GrammarSpec; a JSON schema without it),
// "instances": [TEXT, ...], "draws": N, "soft": N (of AnswerDrawer), "answers": N, "seed": S,
// "any_whitespace": true, "strict": true}. Its answer is a line: {"refused": SENTENCE} or {"compile_ms": MS,
// "bytes": BYTES, "accepted": [true or false for each instance], "texts": [what was drawn and ended],
// "unfinished": N, "num_tokens": N, "problems": [TEXT, ...], "mask_us": US, "slowest_mask_us": US}.
// "draws" are made from masks alone, "answers" by the engine, at temperature 1 and of MAX_TOKENS at most.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "grammar/engine_draws.h"
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

void DrawFromMasks(const json& question, const tandem::Grammar& grammar, const tandem::AnswerDrawer& drawer,
                   json* answer) {
  const int draws = question.value("draws", 0);
  const auto seed = question.value("seed", uint64_t{0});
  int num_masks = 0, unfinished = 0;
  double masks_us = 0, slowest_mask_us = 0;
  for (int i = 0; i < draws; ++i) {
    const auto drawn = drawer.Draw(grammar, seed + static_cast<uint64_t>(i), question.value("soft", i % 40));
    num_masks += drawn.num_masks;
    masks_us += drawn.masks_us;
    slowest_mask_us = std::max(slowest_mask_us, drawn.slowest_mask_us);
    if (!drawn.problem.empty()) {
      (*answer)["problems"].push_back(drawn.problem + " after " + drawn.text);
    } else if (!drawn.has_ended) {
      ++unfinished;
    } else if (!tandem::IsValidUtf8(drawn.text)) {
      (*answer)["problems"].push_back("no UTF-8: " + drawn.text);
    } else {
      (*answer)["texts"].push_back(drawn.text);
    }
  }
  (*answer)["unfinished"] = unfinished;
  (*answer)["num_tokens"] = num_masks;
  (*answer)["mask_us"] = num_masks == 0 ? 0 : masks_us / num_masks;
  (*answer)["slowest_mask_us"] = slowest_mask_us;
}

// What questions are answered with.
struct Tools {
  const tandem::Tokenizer* tokenizer;
  const tandem::AnswerDrawer* drawer;
  tandem::GrammarCompiler* compiler;
  tandem::EngineDrawer* engine;  // null: draws are from masks alone
};

json Answer(const json& question, const Tools& tools) {
  const auto begin = std::chrono::steady_clock::now();
  const auto grammar = tools.compiler->CompileAndWait(
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
    answer["accepted"].push_back(AcceptsTokens(**grammar, *tools.tokenizer, instance.get<std::string>()));
  answer["texts"] = json::array();
  answer["problems"] = json::array();
  DrawFromMasks(question, **grammar, *tools.drawer, &answer);
  if (const int count = question.value("answers", 0); count > 0 && tools.engine != nullptr) {
    tandem::EngineDraws draws = tools.engine->Draw(*grammar, count, question.value("seed", uint64_t{0}));
    answer["texts"] = std::move(draws.texts);
    answer["problems"] = std::move(draws.problems);
    answer["unfinished"] = draws.num_beginnings;
    answer["num_tokens"] = draws.num_tokens;
  }
  return answer;
}

int AnswerAll(const tandem::Tokenizer& tokenizer, const tandem::GrammarVocabulary& vocabulary,
              tandem::EngineDrawer* engine) {
  const tandem::AnswerDrawer drawer(vocabulary);
  tandem::GrammarCompiler compiler(vocabulary, {});
  const Tools tools{&tokenizer, &drawer, &compiler, engine};
  for (std::string line; std::getline(std::cin, line);) {
    // What is no UTF-8 is a finding, not an end.
    std::cout << Answer(json::parse(line), tools).dump(-1, ' ', false, json::error_handler_t::replace)
              << std::endl;
  }
  return 0;
}

int Fail(const std::string& message) {
  std::cerr << "grammar_suite: " << message << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 1) {
    const auto tokenizer = tandem::Tokenizer::FromGguf(arguments[0]);
    if (!tokenizer.ok()) return Fail(tokenizer.error().message);
    const int32_t end = (*tokenizer)->eos_token_id().value();
    // A model may have more ids than its tokenizer.
    return AnswerAll(**tokenizer,
                     tandem::MakeGrammarVocabulary(**tokenizer, (*tokenizer)->vocab_size() + 64, {&end, 1}),
                     nullptr);
  }
  if (arguments.size() != 3 || arguments[0] != "--engine")
    return Fail("the arguments are TOKENIZER.gguf, or --engine MODEL MAX_TOKENS");
  const auto drawer = tandem::EngineDrawer::Create(arguments[1], std::stoll(arguments[2]));
  if (!drawer.ok()) return Fail(drawer.error().message);
  const tandem::Engine& engine = (*drawer)->engine();
  return AnswerAll(engine.tokenizer(),
                   tandem::MakeGrammarVocabulary(engine.tokenizer(), engine.model_config().vocab_size,
                                                 engine.generation_defaults().eos_token_ids),
                   drawer->get());
}
