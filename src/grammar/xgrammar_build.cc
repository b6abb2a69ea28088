#include "grammar/xgrammar_build.h"

#include <grammar_impl.h>
#include <support/logging.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "grammar/ebnf_check.h"
#include "grammar/expression.h"
#include "grammar/json_schema_grammar.h"
#include "grammar/regex_parser.h"
#include "grammar/structural_tag_grammar.h"
#include "grammar/xgrammar_state.h"

namespace tandem {
namespace {

Result<std::string> GrammarOfExpression(const Expression& expression, GrammarSpec::Kind kind) {
  if (CompileCost(expression) > kMaxCompileCost)
    return MakeError(ErrorCode::kInvalidArgument, "the {} is too large: it would take too long to compile",
                     KindName(kind));
  return PrintGrammar(expression);
}

Result<std::string> GrammarOfChoices(const std::vector<std::string>& choices) {
  if (choices.empty()) return MakeError(ErrorCode::kInvalidArgument, "the list of choices is empty");
  std::vector<Expression> options;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!IsValidUtf8(choices[i])) return MakeError(ErrorCode::kInvalidArgument, "choice {} is no UTF-8", i);
    options.push_back(Literal(choices[i]));
  }
  return GrammarOfExpression(Choice(std::move(options)), GrammarSpec::Kind::kChoice);
}

// In xgrammar's notation; of a structural tag, one without schemas.
Result<std::string> XgrammarText(const GrammarSpec& spec) {
  const JsonStyle style{spec.any_whitespace, spec.strict};
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonObject:
      return GrammarOfJsonObjects(style);
    case GrammarSpec::Kind::kJsonSchema:
      return GrammarOfJsonSchema(spec.text, style);
    case GrammarSpec::Kind::kRegex: {
      TANDEM_ASSIGN_OR_RETURN(const Expression expression, ParseRegex(spec.text));
      return GrammarOfExpression(expression, spec.kind);
    }
    case GrammarSpec::Kind::kChoice:
      return GrammarOfChoices(spec.choices);
    case GrammarSpec::Kind::kEbnf: {
      TANDEM_RETURN_IF_ERROR(CheckEbnf(spec.text));
      return spec.text;
    }
    case GrammarSpec::Kind::kStructuralTag:
      return PrepareStructuralTag(spec.text, style);
  }
  return MakeError(ErrorCode::kUnsupported, "there is no kind {}", static_cast<int>(spec.kind));
}

// The first line of what xgrammar says, without the place in its own sources.
std::string FirstSentence(std::string_view text) {
  if (const size_t end = text.find(") is false: "); text.starts_with("Check failed: (") && end != text.npos)
    text.remove_prefix(end + std::string_view(") is false: ").size());
  text = text.substr(0, text.find('\n'));
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.remove_suffix(1);
  return std::string(text.substr(0, 300));
}

// The tokens that a grammar names by their ids.
TokenMask NamedTokens(const xgrammar::CompiledGrammar& compiled, int64_t vocab_size) {
  TokenMask named(NumMaskWords(vocab_size));
  const xgrammar::Grammar grammar = compiled.GetGrammar();
  const xgrammar::CompactFSM& fsm = grammar->complete_fsm;
  for (int state = 0; state < fsm.NumStates(); ++state) {
    for (const auto& edge : fsm.GetEdges(state)) {
      if (!edge.IsToken()) continue;
      const auto info = fsm.GetTokenEdgeInfo(edge.GetAuxIndex());
      for (int32_t i = 0; i < info.Count(); ++i) {
        const auto id = static_cast<size_t>(info.TokenIds()[i]);
        named[id / 32] |= 1U << (id % 32);
      }
    }
  }
  return named;
}

// Control tokens that a structural tag spells out.
void AddSpelledTokens(const GrammarVocabulary& vocabulary, std::string_view tag, TokenMask& named) {
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!IsInMask(vocabulary.control_tokens, id)) continue;
    const std::string& token = vocabulary.tokens[id];
    if (!token.empty() && tag.find(token) != tag.npos) named[id / 32] |= 1U << (id % 32);
  }
}

// Where the vocabulary has no token that goes on, a state offers the end.
bool CanBegin(const Grammar& grammar, const GrammarVocabulary& vocabulary) {
  TokenMask mask(NumMaskWords(vocabulary.vocab_size));
  const std::unique_ptr<GrammarState> state = grammar.Begin();
  state->FillMask(mask);
  return state->may_end() || mask != MakeTokenMask(vocabulary.end_tokens, vocabulary.vocab_size);
}

}  // namespace

struct GrammarBuilder::Prepared {
  GrammarVocabulary vocabulary;
  std::once_flag once;
  std::optional<xgrammar::GrammarCompiler> compiler;

  xgrammar::GrammarCompiler& Compiler() {
    std::call_once(once, [this] {
      const xgrammar::TokenizerInfo info(vocabulary.tokens, xgrammar::VocabType::RAW,
                                         static_cast<int>(vocabulary.vocab_size), vocabulary.end_tokens);
      compiler.emplace(info, 1, false);
    });
    return *compiler;
  }
};

GrammarBuilder::GrammarBuilder(GrammarVocabulary vocabulary, const GrammarLimits& limits)
    : prepared_(std::make_unique<Prepared>()), limits_(limits) {
  prepared_->vocabulary = std::move(vocabulary);
}

GrammarBuilder::~GrammarBuilder() = default;

Result<std::shared_ptr<const Grammar>> GrammarBuilder::Build(const GrammarSpec& spec) const {
  const GrammarVocabulary& vocabulary = prepared_->vocabulary;
  const Result<std::string> text = XgrammarText(spec);
  if (!text.ok()) return text.error();
  try {
    xgrammar::GrammarCompiler& compiler = prepared_->Compiler();
    const xgrammar::CompiledGrammar compiled = spec.kind == GrammarSpec::Kind::kStructuralTag
                                                   ? compiler.CompileStructuralTag(*text)
                                                   : compiler.CompileGrammar(*text);
    TokenMask named = NamedTokens(compiled, vocabulary.vocab_size);
    if (spec.kind == GrammarSpec::Kind::kStructuralTag) AddSpelledTokens(vocabulary, spec.text, named);
    std::shared_ptr<const Grammar> grammar = WrapCompiledGrammar(compiled, vocabulary, named);
    if (grammar->memory_bytes() > limits_.max_compiled_bytes)
      return MakeError(ErrorCode::kInvalidArgument,
                       "the {} takes {} bytes when compiled, and at most {} are allowed", KindName(spec.kind),
                       grammar->memory_bytes(), limits_.max_compiled_bytes);
    if (!CanBegin(*grammar, vocabulary))
      return MakeError(ErrorCode::kInvalidArgument, "no text follows the {} that this model has tokens for",
                       KindName(spec.kind));
    return grammar;
  } catch (const xgrammar::LogFatalError& error) {
    return MakeError(ErrorCode::kInvalidArgument, "the {} is not valid: {}", KindName(spec.kind),
                     FirstSentence(error.std::runtime_error::what()));
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorCode::kResourceExhausted, "the {} takes more memory to compile than there is",
                     KindName(spec.kind));
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kInvalidArgument, "the {} is not valid: {}", KindName(spec.kind),
                     FirstSentence(error.what()));
  }
}

}  // namespace tandem
