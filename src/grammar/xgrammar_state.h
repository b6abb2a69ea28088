// A compiled grammar of xgrammar behind grammar.h.
#pragma once

#include <memory>

#include "grammar/grammar_vocabulary.h"
#include "request/grammar.h"

namespace xgrammar {
class CompiledGrammar;
}

namespace tandem {

// named: the control tokens that the grammar may have all the same. vocabulary: copied from.
std::shared_ptr<const Grammar> WrapCompiledGrammar(const xgrammar::CompiledGrammar& compiled,
                                                   const GrammarVocabulary& vocabulary,
                                                   const TokenMask& named);

}  // namespace tandem
