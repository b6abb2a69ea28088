// Compiles grammars, in threads of its own, and keeps them.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"
#include "grammar/grammar_limits.h"
#include "grammar/grammar_spec.h"
#include "grammar/grammar_vocabulary.h"
#include "request/grammar.h"

namespace tandem {

// Any thread.
class GrammarCompiler {
 public:
  // One sentence that names the place: a JSON pointer (#/properties/a), a byte of a regular expression, a
  // line and column of a grammar. kInvalidArgument: the spec is wrong, too large, or takes too long;
  // kUnsupported: a keyword that would not be enforced; kUnavailable, kResourceExhausted: try again later.
  using Answer = Result<std::shared_ptr<const Grammar>>;
  // Must not block for long nor throw.
  using Done = std::function<void(Answer)>;

  struct Counters {
    int64_t compiled = 0;  // with an error or without
    int64_t cache_hits = 0;
    int64_t took_too_long = 0;
    int64_t cached_grammars = 0;
    int64_t cached_bytes = 0;
  };

  GrammarCompiler(GrammarVocabulary vocabulary, const GrammarLimits& limits);
  // With what compiles a spec; several threads call it at a time.
  using Build = std::function<Answer(const GrammarSpec&)>;
  GrammarCompiler(Build build, const GrammarLimits& limits);
  // Answers everything that waits with kUnavailable. A compilation that goes on for another second is left to
  // its end, in a thread that nobody waits for.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Calls done exactly once: before it returns if the grammar is kept or the spec is refused at first sight,
  // else on a thread of the compiler, after limits.max_compile_time at the latest. Specs that are equal
  // compile once.
  void Compile(GrammarSpec spec, Done done);
  // The same for who can wait.
  Answer CompileAndWait(GrammarSpec spec);

  Counters counters() const;

 private:
  class Shop;
  struct Thread {
    std::thread thread;
    std::future<void> ended;
  };
  Thread Start(void (Shop::*loop)());

  std::shared_ptr<Shop> shop_;
  std::vector<Thread> threads_;
};

}  // namespace tandem
