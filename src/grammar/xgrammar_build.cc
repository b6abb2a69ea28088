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

#include "grammar/expression.h"
#include "grammar/json_schema_grammar.h"
#include "grammar/regex_parser.h"
#include "grammar/structural_tag_text.h"
#include "grammar/xgrammar_state.h"

namespace tandem {
namespace {

std::string ChoiceGrammar(const std::vector<std::string>& choices) {
  std::vector<Expression> options;
  options.reserve(choices.size());
  for (const std::string& choice : choices) options.push_back(Literal(choice));
  return PrintGrammar(Choice(std::move(options)));
}

// The grammar in xgrammar's notation.
Result<std::string> GrammarText(const GrammarSpec& spec) {
  const JsonStyle style{spec.any_whitespace, spec.strict};
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonObject:
      return GrammarOfJsonObjects(style);
    case GrammarSpec::Kind::kJsonSchema:
      return GrammarOfJsonSchema(spec.text, style);
    case GrammarSpec::Kind::kRegex: {
      TANDEM_ASSIGN_OR_RETURN(const Expression expression, ParseRegex(spec.text));
      return PrintGrammar(expression);
    }
    case GrammarSpec::Kind::kChoice:
      return ChoiceGrammar(spec.choices);
    case GrammarSpec::Kind::kStructuralTag:
      return StructuralTagText(spec.text, style);
    default:
      return spec.text;
  }
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

Status GrammarBuilder::Check(const GrammarSpec& spec) const {
  if (SpecBytes(spec) > limits_.max_spec_bytes)
    return MakeError(ErrorCode::kInvalidArgument, "the {} has {} bytes, and at most {} are allowed",
                     KindName(spec.kind), SpecBytes(spec), limits_.max_spec_bytes);
  return {};
}

Result<std::shared_ptr<const Grammar>> GrammarBuilder::Build(const GrammarSpec& spec) const {
  TANDEM_RETURN_IF_ERROR(Check(spec));
  const GrammarVocabulary& vocabulary = prepared_->vocabulary;
  const Result<std::string> text = GrammarText(spec);
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
