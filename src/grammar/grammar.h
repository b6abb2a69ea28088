// What an answer has to follow, compiled for one vocabulary, and where one answer stands in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tandem {

// One answer's way through its grammar. Not thread-safe.
class GrammarState {
 public:
  virtual ~GrammarState() = default;

  // The answer's next token. False: the grammar does not have it here, and nothing has changed.
  virtual bool Accept(int32_t token) = 0;
  // The tokens that may come next; an end token is among them where the answer may end. mask: a TokenMask of
  // the vocabulary. All of them once the answer has ended.
  virtual void FillMask(std::span<uint32_t> mask) = 0;
  // An end token was accepted.
  virtual bool ended() const = 0;
  // Whether the answer could end here.
  virtual bool may_end() const = 0;
};

// Immutable; any thread. Outlived by none of its states.
class Grammar {
 public:
  virtual ~Grammar() = default;
  virtual std::unique_ptr<GrammarState> Begin() const = 0;
  virtual size_t memory_bytes() const = 0;
};

}  // namespace tandem
