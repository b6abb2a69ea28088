// From a spec to a compiled grammar. Knows neither threads nor caches: grammar_compiler.h does.
#pragma once

#include <memory>

#include "base/result.h"
#include "grammar/grammar_limits.h"
#include "grammar/grammar_spec.h"
#include "grammar/grammar_vocabulary.h"
#include "request/grammar.h"

namespace tandem {

// Any thread, several at a time.
class GrammarBuilder {
 public:
  // What vocabulary holds is prepared at the first Build. limits: those of one spec.
  GrammarBuilder(GrammarVocabulary vocabulary, const GrammarLimits& limits);
  ~GrammarBuilder();
  GrammarBuilder(const GrammarBuilder&) = delete;
  GrammarBuilder& operator=(const GrammarBuilder&) = delete;

  // Slow: milliseconds to seconds. What is wrong with the spec is found in milliseconds.
  Result<std::shared_ptr<const Grammar>> Build(const GrammarSpec& spec) const;

 private:
  struct Prepared;
  std::unique_ptr<Prepared> prepared_;
  GrammarLimits limits_;
};

}  // namespace tandem
